"""Who waits for events, and what they are told."""
