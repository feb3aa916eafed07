"""The order of windows on the desktop of a Computer."""

from __future__ import annotations

from typing import Any

import mcp.types as t
import pytest

from sublet.office_client import desktop as module
from sublet.office_client.desktop import MAX_PAGES, desktop
from sublet.office_client.servers import ServerFailed

pytestmark = pytest.mark.anyio


def window(name: str, priority: float | None = None, **meta: object) -> t.Resource:
    annotations = None if priority is None else t.Annotations(priority=priority)
    return t.Resource(uri=name if ":" in name else f"window://{name}", name=name, annotations=annotations, _meta=meta)


class Shows:
    """A server with windows, of which one page is told at a time."""

    def __init__(self, *windows: t.Resource, fails: bool = False, endless: bool = False) -> None:
        self.windows, self.fails, self.endless = windows, fails, endless
        self.pages = 0

    async def resources(self, cursor: str | None) -> t.ListResourcesResult | None:
        if self.fails:
            raise ServerFailed("it is away")
        if not self.windows and not self.endless:
            return None
        self.pages += 1
        number = int(cursor or 0)
        more = self.endless or number + 1 < len(self.windows)
        return t.ListResourcesResult(
            resources=list(self.windows[number : number + 1]), next_cursor=str(number + 1) if more else None
        )

    async def texts(self, resource: t.Resource) -> list[str]:
        return [] if "empty" in resource.name else [f"in {resource.name}", "more"]


async def names(*servers: Any, size: int | None = None, wanted: str | None = None) -> list[str]:
    return [shown.split("\n")[0].removeprefix("window://") for shown in await desktop(servers, size, wanted)]


async def test_windows_stand_by_server_and_priority() -> None:
    first = Shows(window("a"), window("b", 0.2), window("c", 0.9), window("empty", 1.0), window("file:///d"))
    second = Shows(window("e"))
    assert await names(first, Shows(fails=True), Shows(), second) == ["c", "b", "a", "e"]
    assert await names(second, first, size=2) == ["e", "c"]
    assert await names(first, size=0) == await names(first, size=-1) == []
    assert await names(first, second, wanted="window://e") == ["e"]
    assert await desktop([second], None, None) == ["window://e\n\nin e\n\nmore"]  # type: ignore[list-item]


async def test_a_window_for_the_full_screen_stands_alone() -> None:
    server = Shows(window("a", 0.9), window("b", fullscreen=True), window("c", fullscreen=True))
    assert await names(server, Shows(window("d"))) == ["b", "d"]


async def test_pages_without_end_are_not_read() -> None:
    server = Shows(endless=True)
    assert await names(server) == []
    assert server.pages == MAX_PAGES


async def test_windows_that_fit_into_no_answer_are_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Shows(*(window(name) for name in "abc"))
    monkeypatch.setattr(module, "MAX_SHOWN_CHARS", 2 * len("window://a\n\nin a\n\nmore"))
    assert await names(server) == ["a", "b"]
