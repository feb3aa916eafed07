"""Whose key is whose, and which process an entity's daemon is."""
