"""Capabilities: programs that agents and people may run, described so that only what is needed is told (SuperAgent 6.3)."""
