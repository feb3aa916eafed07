"""Commands about the daemon itself, its page, its configuration and its MCP hosts."""
