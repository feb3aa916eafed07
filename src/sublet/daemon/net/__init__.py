"""Listening and addresses: HTTP servers with deadlines, Unix sockets, ports that are found again."""
