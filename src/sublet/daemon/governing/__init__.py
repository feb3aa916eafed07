"""Governance: what holds, why it was decided so, and the log of it."""
