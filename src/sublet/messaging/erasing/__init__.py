"""Finishes what purging has begun: files, words that are found, and what is left on the disk."""
