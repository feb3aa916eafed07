"""The composition root: builds the daemon, area by area, starts it and stops it (DESIGN 2)."""
