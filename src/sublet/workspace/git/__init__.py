"""The repository in a lent directory: what of it is shown, and what is checked before git may believe it."""
