"""Agents that speak the Agent Client Protocol, with every permission they ask decided by policy (DESIGN 4.9)."""
