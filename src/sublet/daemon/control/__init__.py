"""The control API for the owner's own programs: its socket, its routes, its client, and the service behind it."""
