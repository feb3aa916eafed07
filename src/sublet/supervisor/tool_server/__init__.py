"""Tools of ours for agent programs in the sandbox: an MCP server of one job, reached by a socket of its own."""
