"""The executor's mount: sshfs, the relay that it outlives lost links by, and what is done about reads that hang."""
