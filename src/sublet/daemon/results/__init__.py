"""Staged results: reviewed, applied, discarded, undone."""
