"""Keeps what a live lease overwrites that it did not write itself."""
