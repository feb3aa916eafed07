"""The stream of events, and how far each of our entities has read it."""
