"""Forks and rollbacks: who has signed two histories, and who has gone back behind what it said."""
