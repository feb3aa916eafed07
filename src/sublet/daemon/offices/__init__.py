"""Offices in the daemon: which there are, who may join, and what policy says of each call."""
