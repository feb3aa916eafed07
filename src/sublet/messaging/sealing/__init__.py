"""Sealed rooms in the engine: who holds which key, and what is sealed on its way out and opened on its way in."""
