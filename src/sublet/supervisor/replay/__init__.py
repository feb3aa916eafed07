"""Decides again what was decided in a session, from what was recorded (SuperAgent 12, DESIGN 7)."""
