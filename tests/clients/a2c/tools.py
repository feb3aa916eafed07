"""An MCP server on stdio, for a Computer of the published package."""

from __future__ import annotations

from mcp.server.fastmcp import FastMCP, Image

server = FastMCP("notes")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def fail() -> str:
    raise ValueError("it fails as asked")


@server.tool()
def picture(size: int) -> Image:
    return Image(data=b"\x89" * size, format="png")


server.run()
