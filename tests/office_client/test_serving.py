"""A Computer that stays in its office: it joins, tells of new tools, comes again, and gives up where it has to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from websockets.asyncio.server import ServerConnection, serve

from sublet.office_client import serving as module
from sublet.office_client.blobs import Landing
from sublet.office_client.computer import Computer
from sublet.office_client.link import Place
from sublet.office_client.serving import Changes, Serving
from sublet.protocol.errors import LocalCode, SubletError
from support.office_client import NOWHERE, OURS, Served, served

pytestmark = pytest.mark.anyio


@dataclass
class NoServer:
    """Stands for an MCP server that runs, or could not be started."""

    failure: str = ""
    tools: tuple[Any, ...] = ()
    started: anyio.Event = field(default_factory=anyio.Event)
    command: Any = None

    def __post_init__(self) -> None:
        self.command = type("Command", (), {"bundle_id": "notes", "name": "notes"})()

    async def serve(self) -> None:
        self.started.set()
        if not self.failure:
            await anyio.sleep_forever()


@dataclass
class Stays:
    """A Computer that is served, and what came of it."""

    places: list[Place] = field(default_factory=list)
    stopping: anyio.Event = field(default_factory=anyio.Event)
    changes: Changes = field(default_factory=Changes)
    joined: int = 0
    raised: SubletError | None = None
    over: anyio.Event = field(default_factory=anyio.Event)

    async def where(self) -> Place:
        if not self.places:
            raise SubletError(LocalCode.DAEMON_UNAVAILABLE, "no daemon", "")
        return self.places[-1]

    def ready(self, place: Place) -> None:
        self.joined += 1

    async def run(self, token: str = "1-bob", name: str = "bob", server: NoServer | None = None) -> None:
        servers: Any = [server or NoServer()]
        computer = Computer(name, servers, Landing(None, lambda: 0.0))
        try:
            await Serving(computer, servers, self.where, token, self.changes).run(self.ready, self.stopping)
        except SubletError as error:
            self.raised = error
        self.over.set()


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.02)


@asynccontextmanager
async def staying(stays: Stays, **options: Any) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: stays.run(**options))
        yield
        stays.stopping.set()
        with anyio.fail_after(30):
            await stays.over.wait()


def names(here: Served) -> list[str]:
    return [one.seat.name for one in here.offices.members_of(OURS) if one.seat is not None]


async def test_it_joins_tells_of_new_tools_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.0)
    async with served() as here:
        alice = await here.joined("1-alice")
        stays = Stays([Place(here.url, OURS)])
        async with staying(stays):
            await until(lambda: stays.joined == 1)
            assert names(here) == ["alice", "bob"]
            tools = await alice.call("client:get_tools", {"agent": "alice", "req_id": "r", "computer": "bob"})
            assert tools == [{"tools": [], "req_id": "r"}]
            stays.changes.note()
            await until(lambda: not stays.changes._event.is_set())
        await until(lambda: names(here) == ["alice"])
        told = [event for event, _ in await alice.quiet()]
        assert told == ["notify:enter_office", "notify:update_tool_list", "notify:leave_office"]
        assert stays.raised is None


async def test_it_comes_again_with_the_same_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    stays = Stays()
    async with served() as here:
        stays.places = [Place(here.url, OURS)]
        async with anyio.create_task_group() as group:
            group.start_soon(stays.run)
            await until(lambda: stays.joined == 1)
            # Its daemon is gone, then nobody listens, then another one lets it in.
            here.desk.dismiss(here.offices.close_all("the daemon stops"))
            stays.places = []
            await anyio.sleep(0.2)
            stays.places = [Place("http://127.0.0.1:1", OURS)]
            await anyio.sleep(0.2)
            async with served() as again:
                stays.places = [Place(again.url, OURS)]
                await until(lambda: stays.joined == 2)
                assert names(again) == ["bob"]
                # A token that was revoked is no use to come again with.
                again.tokens.seats.clear()
                again.desk.dismiss(again.offices.close_all("the token was revoked"))
                with anyio.fail_after(30):
                    await stays.over.wait()
    assert stays.raised is not None
    assert stays.raised.code is LocalCode.TOKEN_INVALID


@pytest.mark.parametrize(
    ("options", "office_id", "code"),
    [
        ({"token": "made-up"}, OURS, LocalCode.TOKEN_INVALID),
        ({"token": "1-carol"}, OURS, LocalCode.POLICY_DENIED),
        ({}, NOWHERE, LocalCode.POLICY_DENIED),
        ({"server": NoServer("MCP server notes has ended (exit 3)")}, OURS, LocalCode.UNAVAILABLE),
    ],
)
async def test_what_refuses_at_first_ends_it(options: dict[str, Any], office_id: str, code: LocalCode) -> None:
    async with served() as here:
        stays = Stays([Place(here.url, office_id)])
        with anyio.fail_after(30):
            await stays.run(**options)
    assert stays.raised is not None
    assert stays.raised.code is code
    assert stays.raised.hint
    assert stays.joined == 0


async def test_where_nobody_serves_at_first_it_ends() -> None:
    stays = Stays([Place("http://127.0.0.1:1", OURS)])
    await stays.run()
    assert stays.raised is not None
    assert stays.raised.code is LocalCode.UNAVAILABLE


async def test_a_server_that_ends_the_connection_at_first_is_told() -> None:
    async def ends(socket: ServerConnection) -> None:
        await socket.send('0{"sid":"a"}')
        await socket.recv()
        await socket.send('40/smcp,{"sid":"x"}')
        await socket.recv()
        await socket.close()

    async with serve(ends, "127.0.0.1", 0, compression=None) as server:
        stays = Stays([Place(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", OURS)])
        with anyio.fail_after(30):
            await stays.run()
    assert stays.raised is not None
    assert stays.raised.code is LocalCode.UNAVAILABLE
    assert stays.joined == 0
