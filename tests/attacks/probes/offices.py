"""Members of offices that break off, poll half, and are told more than they read; the others go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import anyio
import httpx

from attacks.probe import FailureProbe, KeptProbe, Probe
from sublet.app.offices import OfficePlace
from sublet.office_server.lines import Line, Lines
from sublet.office_server.loop_time import Counted, nobody_waits
from sublet.office_server.openings import MAX_ADDRESSES
from sublet.office_server.socketio_server import SocketIoServer
from sublet.offices.seats import Cut, Tell
from support.office_client import OURS, Served, served, serving

OK = {"content": [{"type": "text", "text": "done"}], "isError": False}
QUERY = "EIO=4&transport=polling&a2c_version=0.4.0"


async def _polled(here: Served) -> None:
    """Let a stranger poll, send a body that is too large and one that is no packet, and break off."""
    async with httpx.AsyncClient(timeout=20) as client:
        opened = await client.get(f"{here.url}/socket.io/?{QUERY}")
        session = opened.json()["sid"] if opened.text.startswith("{") else opened.text.split('"')[3]
        url = f"{here.url}/socket.io/?{QUERY}&sid={session}"
        assert (await client.post(url, content="x" * (17 << 10))).status_code == 413
        assert (await client.post(url, content='42/smcp,1["server:join_office"]')).status_code == 400
        with suppress(httpx.HTTPError):
            await client.get(url, timeout=0.05)


async def _members() -> None:
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")
        await _polled(here)
        carol = await here.joined("1-carol")
        carol.socket.transport.abort()
        bob.answers = {"client:tool_call": OK}
        async with serving(bob):
            assert await alice.use("a") == OK
        here.desk.dismiss(here.offices.revoke({"1-bob"}, "why"))
        await bob.closed()
        with anyio.fail_after(20):
            while len(here.offices.members_of(OURS)) != 1:
                await anyio.sleep(0.02)
        assert (await alice.use("a"))["code"] == 404
    place = OfficePlace()
    async with anyio.create_task_group() as group:
        group.start_soon(place.listening)
        await anyio.sleep(0)
        place.use("")
        place.use("http://127.0.0.1:1")


class _Deaf:
    def connected(self, sid: str, secret: str) -> bool:
        return False

    def gone(self, sid: str) -> None:
        return

    async def handle(self, sid: str, event: str, arguments: list[object]) -> None:
        return


@contextmanager
def _told() -> Iterator[object]:
    """Have a server tell and cut connections that are gone."""

    async def tell() -> SocketIoServer:
        server = SocketIoServer(Lines(), _Deaf())  # type: ignore[arg-type]  # it hears nothing
        for number in range(2_000):
            server.carry_out([Tell((f"gone{number}",), "notify:enter_office", {"a": "x" * 1_000}), Cut("gone", "why")])
        await server.close()
        return server

    yield asyncio.run(tell())


@contextmanager
def _come_and_gone() -> Iterator[object]:
    """Have sessions come from more addresses, with more tokens, than are remembered, and as many lines work and go."""

    async def come() -> Lines:
        lines = Lines()
        for number in range(4 * MAX_ADDRESSES):
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            lines.begin(address)
            lines.openings.known(address)
            line = Line(address, lines)
            line.become_known(f"{number:064}")
            lines.opened(str(number), line)
            line.waiting = asyncio.Queue()
            line.waiting.put_nowait("x" * 1_000)
            line.pace.worked(0.001)
            lines.closed(str(number))
            line.drop()
        return lines

    yield asyncio.run(come())


async def _breaks_off() -> None:
    """Cancel what is counted, let it fail, and wait for a turn that never is a quiet one."""
    line = Line("10.0.0.1", Lines())

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("made up")

    with anyio.move_on_after(0.01):
        await Counted(line.pace, asyncio.sleep(60))
    with suppress(LookupError):
        await Counted(line.pace, fails())
    others = Lines()
    for one in [Line("10.0.0.1", others) for _ in range(3)]:
        one.pace.worked(0.001)
    assert others.at_work.crowded
    turning = True

    async def busy() -> None:
        while turning:
            time.sleep(0.001)
            await asyncio.sleep(0)

    async with anyio.create_task_group() as group:
        group.start_soon(busy)
        await nobody_waits()
        turning = False


PROBES: Sequence[Probe] = (
    KeptProbe(
        name="offices: sessions of many addresses",
        covers=(
            "office_server.lines:Line.drop",
            "office_server.lines:Lines.__init__",
            "office_server.loop_time:AtWork.__init__",
            "office_server.openings:Openings.__init__",
        ),
        attack=_come_and_gone,
    ),
    FailureProbe(
        name="offices: work that breaks off",
        covers=(
            "office_server.loop_time:AtWork.crowded",
            "office_server.loop_time:Counted.__await__",
            "office_server.loop_time:nobody_waits",
        ),
        throw=_breaks_off,
    ),
    FailureProbe(
        name="offices: members that break off and poll half",
        covers=(
            "app.offices:OfficePlace.listening",
            "office_server.face:OfficeFace.serve",
            "office_server.gate:_body",
            "office_server.socketio_server:SocketIoServer._carry_on",
            "office_server.socketio_server:SocketIoServer._carry_out_all",
            "office_server.socketio_server:SocketIoServer.serve",
            "office_server.web_socket:growing_web_socket.GrowingWebSocket._parse",
        ),
        throw=_members,
    ),
    KeptProbe(
        name="offices: notices for who is gone",
        covers=("office_server.socketio_server:SocketIoServer.__init__",),
        attack=_told,
    ),
)
