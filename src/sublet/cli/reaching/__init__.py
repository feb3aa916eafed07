"""What starts the daemon, and what reaches it."""
