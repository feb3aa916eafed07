"""Capabilities: programs that agents and people may run, told of only as far as is needed (SuperAgent 6.3)."""
