"""Rooms in the daemon: who speaks in them, the buses of paired daemons, and the operations (DESIGN 6)."""
