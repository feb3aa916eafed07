"""What the engine's operations take and answer, for those who call them: the types alone, and nothing of the engine."""
