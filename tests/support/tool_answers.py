"""An MCP host on the real face over fakes, and what the tools answer in both of their forms."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp import Client
from mcp.types import CallToolResult, TextContent

from sublet.daemon.config.paths import Home
from support.fake_daemon_api import FakeDaemonApi
from support.fake_rooms import FakeRooms
from support.mcp_face import served, server_of

WORK: Final = {"workspace_dir": "/srv/projects/app", "peer": "bob", "prompt": "Run the tests.\nFix what fails."}
"""What is delegated."""
MAX_ANSWER_CHARS: Final = 20_000
"""Of both forms together (DESIGN 5)."""


@asynccontextmanager
async def connected(
    api: FakeDaemonApi, home: Home, mode: str = "auto", talk: FakeRooms | None = None, **options: Any
) -> AsyncIterator[Client]:
    """Serve ``api`` and yield a client of the SDK that reaches it by a relay of its own."""
    async with served(api, home, talk=talk), Client(server_of(home), mode=mode, **options) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    """Return what a tool answers as text, which is one part."""
    (part,) = result.content
    assert isinstance(part, TextContent)
    return part.text


def facts(result: CallToolResult) -> dict[str, Any]:
    """Return the structured form of a success, which is short enough together with the text."""
    assert not result.is_error, text_of(result)
    found: dict[str, Any] = result.structured_content
    assert len(json.dumps(found, ensure_ascii=False)) + len(text_of(result)) < MAX_ANSWER_CHARS
    return found


def same_facts(result: CallToolResult) -> dict[str, Any]:
    """Return the structured form of a success, which the text holds, too, as JSON."""
    found = facts(result)
    assert json.loads(text_of(result)) == found
    return found
