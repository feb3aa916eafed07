"""An MCP server on stdio, for a Computer: tools that add, wait, fail, picture, count and end, and one window."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path

from mcp.server import MCPServer
from mcp.types import CallToolResult, ImageContent, TextContent

server = MCPServer("notes")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it fails as asked")


@server.tool()
def picture(size: int) -> CallToolResult:
    """Return a picture."""
    data = base64.b64encode(b"\x89" * size).decode()
    return CallToolResult(content=[ImageContent(type="image", data=data, mime_type="image/png")])


@server.tool()
def long(size: int) -> str:
    """Return a long text."""
    return "x" * size


@server.tool()
async def wait(file: str, seconds: float) -> CallToolResult:
    """Note that it has begun in a file, wait, and note that it has ended."""
    with Path(file).open("a", encoding="utf-8") as noted:
        noted.write("begun\n")
    await asyncio.sleep(seconds)
    with Path(file).open("a", encoding="utf-8") as noted:
        noted.write("ended\n")
    return CallToolResult(content=[TextContent(type="text", text="done")])


@server.tool()
def secret(name: str) -> str:
    """Return a variable of the environment."""
    return os.environ.get(name, "")


@server.tool()
def end() -> str:
    """End the server."""
    os._exit(3)


@server.resource("window://notes/main")
def window() -> str:
    """Show the desktop."""
    return "what is on the screen"


server.run()
