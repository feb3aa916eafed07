"""What the face keeps for one connected host: its announced roots and its resource subscriptions."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlsplit

import anyio
from mcp.server import ServerRequestContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mcp.server.session import ServerSession

    from sublet.policy.decision import Subject

MAX_SUBSCRIPTIONS = 256
MAX_ROOTS = 64
MAX_CALLS = 32
"""Tool calls of one host that may be under way at once."""
CANCELLED = "notifications/cancelled"


class HostSession:
    """State of one connection. On the 2026 era there is no other: the SDK builds a new one for every request."""

    def __init__(self, agent: Subject | None = None) -> None:
        self.agent = agent
        self.id = secrets.token_hex(12)
        self.waiting: set[str] = set()
        """Approvals that calls of this host have asked for."""
        self.roots: tuple[str, ...] | None = None
        self.calls = 0
        self._under_way: set[str | int] = set()
        self._withdrawn: set[str | int] = set()
        self._channel: ServerSession | None = None
        self._subscribed: set[str] = set()
        self._changed: dict[str, None] = {}
        self._wake = anyio.Event()

    @contextlib.contextmanager
    def answering(self, request_id: str | int | None) -> Iterator[Callable[[], bool]]:
        """Yield what tells whether the host has cancelled this call; at most ``MAX_CALLS`` are noted at once."""
        if request_id is None:
            yield lambda: False
            return
        self._under_way.add(request_id)
        try:
            yield lambda: request_id in self._withdrawn
        finally:
            self._under_way.discard(request_id)
            self._withdrawn.discard(request_id)

    def cancelled(self, params: Mapping[str, object] | None) -> None:
        """Note that the host has cancelled a call, before the SDK cuts it off; other requests are not noted.

        A call is cut off as well when the host goes away or the daemon stops, which cancels nothing that it began.
        """
        request_id = (params or {}).get("requestId")
        if isinstance(request_id, (str, int)) and request_id in self._under_way:
            self._withdrawn.add(request_id)

    def subscribe(self, uri: str, channel: ServerSession) -> bool:
        """Send updates of ``uri`` over ``channel`` from now on; False where there are too many already."""
        if uri not in self._subscribed and len(self._subscribed) >= MAX_SUBSCRIPTIONS:
            return False
        self._channel = channel
        self._subscribed.add(uri)
        return True

    def unsubscribe(self, uri: str) -> None:
        """Send no more updates of ``uri``."""
        self._subscribed.discard(uri)
        self._changed.pop(uri, None)

    def changed(self, uri: str) -> None:
        """Note that ``uri`` changed. Never waits: a host that does not read must not hold up the others."""
        if uri in self._subscribed:
            self._changed[uri] = None
            self._wake.set()

    async def send_updates(self) -> None:
        """Tell the host what changed, several changes of one resource at once; runs as long as the connection."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._changed and self._channel is not None:
                uri = next(iter(self._changed))
                del self._changed[uri]
                await self._channel.send_resource_updated(uri)


Context: TypeAlias = ServerRequestContext[HostSession]
"""What the SDK passes with a request of a host."""


def local_paths(uris: Iterable[str]) -> tuple[str, ...]:
    """Return the absolute paths of those ``file:`` URIs that name this machine; a root elsewhere is none here."""
    found: list[str] = []
    for uri in uris:
        parts = urlsplit(uri)
        path = unquote(parts.path)
        if parts.scheme == "file" and parts.netloc in ("", "localhost") and path.startswith("/") and "\0" not in path:
            found.append(path)
        if len(found) == MAX_ROOTS:
            break
    return tuple(found)
