"""The SFTP version 3 server: wire format, operations and handles, without any I/O but its session's."""
