"""Snapshots of what a workspace held, and what a lease changed between two of them."""
