"""The real web face on a real port, over a daemon in memory, and somebody who visits it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import anyio
import httpx

from sublet.daemon.config.paths import resolve_home
from sublet.daemon.web_access.logins import WebLogins
from sublet.web.context import WebContext
from sublet.web.face import WebFace
from support.answering import AnsweringTable
from support.fake_daemon_api import FakeDaemonApi
from support.fake_rooms import FakeRooms

ABSENT: Any = cast(Any, None)


@dataclass
class Page:
    """A page that is served."""

    face: WebFace
    api: FakeDaemonApi
    logins: WebLogins

    @property
    def origin(self) -> str:
        """Where it is."""
        return self.face.address

    @property
    def host(self) -> str:
        """What its ``Host`` is."""
        return self.origin.removeprefix("http://")

    def visitor(self, **headers: str) -> httpx.AsyncClient:
        """Return a browser that has not logged in: its requests come from the page itself."""
        given = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin", **headers}
        return httpx.AsyncClient(base_url=self.origin, headers=given, trust_env=False, timeout=20)

    async def log_in(self, client: httpx.AsyncClient) -> None:
        """Log ``client`` in by a new link."""
        answer = await client.post("/api/login", json={"secret": self.logins.make(60)})
        assert answer.status_code == 200, answer.text
        client.headers["X-Sublet-Key"] = answer.json()["key"]


@asynccontextmanager
async def served(base: Path, *services: object, **changes: object) -> AsyncIterator[Page]:
    """Serve a page whose sessions are kept in ``base``, with the operations of ``services`` besides."""
    home = resolve_home({"SUBLET_HOME": str(base / "home")})
    home.make()
    api, logins = FakeDaemonApi(), WebLogins()
    table = AnsweringTable(api, FakeRooms())
    for service in services:
        table.add(service)
    context = WebContext(operations=table, logins=logins, state_dir=Path(home.state_dir), port=0, chosen=True)
    context = replace(context, **cast(Any, changes))
    face = WebFace(context)
    await face.start()
    async with anyio.create_task_group() as group:
        group.start_soon(face.serve)
        yield Page(face, api, cast(WebLogins, context.logins))
        group.cancel_scope.cancel()
