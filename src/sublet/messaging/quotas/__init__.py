"""How much is kept of whom: of members by their daemon, of strangers, and on the disk."""
