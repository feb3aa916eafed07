"""The relay: a process of its own that carries rooms between daemons that do not reach each other (ezagent 7.2)."""
