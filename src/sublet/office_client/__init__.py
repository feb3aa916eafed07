"""The client side of offices: MCP servers of this machine become a Computer of an office, here or elsewhere."""
