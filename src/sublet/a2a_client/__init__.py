"""The calling side of A2A: delegations and plain text to agents elsewhere."""
