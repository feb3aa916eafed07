"""Writes of our own entities: signed, durable, then published."""
