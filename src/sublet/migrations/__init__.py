"""Brings what an older version has on disk to this one: in order, once, after a copy, whole or not at all."""
