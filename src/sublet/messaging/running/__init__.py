"""The engine's one thread, and the ways to it and from it."""
