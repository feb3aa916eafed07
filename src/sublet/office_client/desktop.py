"""The desktop of a Computer: what its MCP servers show as resources with a ``window:`` URI, in one order.

Servers whose tools were called last come first; within a server, windows of higher priority. A server that has a window
for the full screen shows the first of these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sublet.office_client.servers import ServerFailed, ToolServer

if TYPE_CHECKING:
    from mcp.types import Resource

SCHEME: Final = "window://"
MAX_WINDOWS: Final = 64
MAX_PAGES: Final = 8
MAX_SHOWN_CHARS: Final = 16 << 20
"""Of all windows together: more fits into no answer."""


async def desktop(servers: Sequence[ToolServer], size: int | None, window: str | None) -> list[str]:
    """Return what the windows show, of the first ones where all of them are too large.

    Args:
        servers: those that were used last first.
        size: how many windows at most; None for all.
        window: the URI of the one that is wanted; None for all.
    """
    most = MAX_WINDOWS if size is None else max(0, min(size, MAX_WINDOWS))
    shown: list[str] = []
    chars = 0
    for server in servers:
        try:
            windows = await _windows(server, window)
            for resource in _arranged(windows):
                if len(shown) >= most:
                    return shown
                texts = await server.texts(resource)
                text = "\n\n".join([str(resource.uri), *texts]).strip() if texts else ""
                if (chars := chars + len(text)) > MAX_SHOWN_CHARS:
                    return shown
                shown += [text] if text else []
        except ServerFailed:
            continue
    return shown


async def _windows(server: ToolServer, window: str | None) -> list[Resource]:
    found: list[Resource] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await server.resources(cursor)
        if page is None:
            break
        found += [one for one in page.resources if str(one.uri).startswith(SCHEME) and window in (None, str(one.uri))]
        cursor = page.next_cursor
        if cursor is None or len(found) >= MAX_WINDOWS:
            break
    return found[:MAX_WINDOWS]


def _arranged(windows: Sequence[Resource]) -> list[Resource]:
    whole = [one for one in windows if (one.meta or {}).get("fullscreen") is True]
    if whole:
        return whole[:1]
    return sorted(windows, key=lambda one: -((one.annotations and one.annotations.priority) or 0.0))
