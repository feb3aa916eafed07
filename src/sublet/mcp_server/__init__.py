"""The MCP face: tools served in the daemon and the stdio relay."""
