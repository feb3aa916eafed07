"""``sublet chat``: a room in a terminal."""
