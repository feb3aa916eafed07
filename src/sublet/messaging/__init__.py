"""Rooms between daemons: the ezagent engine, its backends, built-ins and extensions (DESIGN 6)."""
