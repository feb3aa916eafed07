"""Export views, the SFTP data plane, mounts, admission, locks, audit and the sandbox."""
