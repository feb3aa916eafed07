"""Rooms that only their members read (ezagent 8, future work "E2EE")."""
