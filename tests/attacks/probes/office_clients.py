"""Offices and tool servers that die, lie and flood around a Computer of ours, and members who flood events."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.server import ServerConnection, serve

from attacks.probe import FailureProbe, KeptProbe, Probe
from sublet.app.computer import server_commands
from sublet.daemon.offices.news import MAX_SHARES, OfficeNews
from sublet.office_client import serving as serving_module
from sublet.office_client.blobs import KEPT_BYTES, BlobShelf, Landing
from sublet.office_client.computer import MAX_CUT_OFF, Computer
from sublet.office_client.link import Place
from sublet.office_client.servers import ToolServer
from sublet.office_client.serving import Changes, Serving
from sublet.offices.seats import Seat
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.names import Role
from sublet.tasks import Pauses, Service, Services

PROGRAM = """
import json, sys
print("nonsense", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, answer = asked.get("method"), None
    if method == "initialize":
        can, about = {"tools": {"listChanged": True}}, {"name": "x", "version": "1"}
        answer = {"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": about}
    elif method == "tools/list":
        answer = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("a", "end")]}
    elif method == "tools/call":
        if asked["params"]["name"] == "end":
            sys.exit(3)
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
        answer = {"content": []}
    if "id" in asked:
        told = {"result": answer} if answer is not None else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)
"""


class _Office:
    """A server of an office that lets a Computer in, asks it, and breaks off in another way each time."""

    def __init__(self) -> None:
        self.came = 0
        self.answers: list[str] = []

    async def play(self, socket: ServerConnection) -> None:
        self.came += 1
        await socket.send('0{"sid":"a","pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}')
        await socket.recv()
        if self.came == 4:
            await socket.send('44/smcp,{"message":"no"}')
            return
        await socket.send('40/smcp,{"sid":"x"}')
        joins = str(await socket.recv())
        await socket.send("2")
        await socket.recv()
        await socket.send(f"43/smcp,{joins[8:].partition('[')[0]}[true,null]")
        asked = '{"agent":"alice","req_id":"%d","computer":"bob","tool_name":"x__%s","params":{}}'
        tool = "end" if self.came == 2 else "a"
        await socket.send(f'42/smcp,7["client:tool_call",{asked % (self.came, tool)}]')
        while not (frame := str(await socket.recv())).startswith("43/smcp,7"):
            await socket.send(f"43/smcp,{frame[8:].partition('[')[0]}[]")
        self.answers.append(frame)
        await socket.send("nonsense" if self.came == 1 else "1")


async def _offices() -> None:
    office, changes = _Office(), Changes()
    [command] = server_commands([[sys.executable, "-c", PROGRAM]], ["x"], os.environ, Path.cwd())
    server = ToolServer(command, changes.note)
    computer = Computer("bob", [server], Landing(None, lambda: 0.0))
    pause, serving_module.FIRST_PAUSE = serving_module.FIRST_PAUSE, 0.02  # type: ignore[misc]
    try:
        async with serve(office.play, "127.0.0.1", 0) as listening:
            place = Place(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", "office")

            async def where() -> Place:
                return place

            with anyio.fail_after(60), pytest.raises(SubletError) as refused:
                await Serving(computer, [server], where, "t", changes).run(lambda _: None, anyio.Event())
            assert refused.value.code is LocalCode.TOKEN_INVALID
    finally:
        serving_module.FIRST_PAUSE = pause  # type: ignore[misc]
    assert office.came == 4
    assert '"isError":false' in office.answers[0]
    assert '"isError":true' in office.answers[1]


async def _uploads() -> None:
    directory = Path(tempfile.mkdtemp())
    landing = Landing(directory, lambda: 0.0)
    piece = {"chunk_offset": 0, "eof": True, "blob": base64.b64encode(b"abc").decode()}
    whole: Any = {**piece, "total_size": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    assert "landing_path" in await landing.take(whole, "r")
    begun = await landing.take({**whole, "total_size": 6, "eof": False}, "r")
    shutil.rmtree(directory)
    last: Any = {**piece, "chunk_offset": 3, "upload_id": begun["upload_id"]}
    refused: Any = await landing.take(last, "r")
    assert refused["details"]["reason"] in ("io_error", "integrity")
    begun = await Landing(directory, lambda: 0.0).take(whole, "r")
    assert begun["code"] == 4019


@contextmanager
def _results() -> Iterator[object]:
    """Have a Computer keep results that nobody fetches."""
    shelf = BlobShelf()
    for number in range(400):
        shelf.put(bytes([number % 256]) * 400_000, "image/png")
    yield shelf


async def _unwritten() -> None:
    """Have the disk fail as events of offices are written; they are written when it works again."""
    written: list[object] = []

    class Events:
        fails = True

        async def transact(self, work: object) -> None:
            if self.fails:
                raise OSError("the disk is full")
            written.append(work)

    events: Any = Events()
    news = OfficeNews(events, lambda: 0.0)
    async with Services(Pauses(first=0.01)).running(Service("events of offices", news.serve)):
        news.moved(Seat("o", "office", Role.COMPUTER, "bob", "t"), None)
        await anyio.sleep(0.05)
        events.fails = False
        news.moved(Seat("o", "office", Role.COMPUTER, "carol", "t"), None)
        with anyio.fail_after(20):
            while not written:
                await anyio.sleep(0.01)


class _Hangs:
    """Stands for a tool server whose tool never answers."""

    failure = ""

    def __init__(self) -> None:
        self.command = type("Command", (), {"bundle_id": "x", "name": "x"})()
        self.tools = [type("Tool", (), {"name": "a"})()]

    async def call(self, *_: object) -> object:
        await anyio.sleep_forever()
        raise AssertionError


@contextmanager
def _cut_off() -> Iterator[object]:
    """Cut off calls without end, and tell of members and calls without end."""
    servers: Any = [_Hangs()]
    computer = Computer("bob", servers, Landing(None, lambda: 0.0))

    async def cut() -> None:
        for number in range(2 * MAX_CUT_OFF):
            asked: Any = {"agent": "a" * 100, "req_id": f"{number:0100}", "computer": "bob"}
            asked |= {"tool_name": "x__a", "params": {}}
            task = asyncio.ensure_future(computer.answer("client:tool_call", (asked,)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(cut())
    events: Any = None
    news = OfficeNews(events, lambda: 0.0)
    for number in range(2 * MAX_SHARES):
        news.moved(Seat("o" * 36, "office", Role.COMPUTER, f"{number:064}", "t"), None)
    yield computer, news


PROBES: Sequence[Probe] = (
    FailureProbe(
        name="offices elsewhere: that break off, lie and say no, and tool servers that end",
        covers=(
            "app.computer:server_commands",
            "office_client.link:Link.serve",
            "office_client.link:_shown",
            "office_client.link:_sole",
            "office_client.link:open_link",
            "office_client.servers:ToolServer._list_again",
            "office_client.servers:ToolServer._once",
            "office_client.servers:ToolServer.serve",
            "office_client.servers:_reason",
            "office_client.servers:_words",
            "office_client.serving:Serving._once",
            "office_client.serving:Serving._stay",
            "office_client.serving:Serving._tell_changes",
            "office_client.serving:Serving.run",
            "office_client.serving:_sole",
        ),
        throw=_offices,
    ),
    FailureProbe(
        name="offices elsewhere: uploads into a directory that goes",
        covers=("office_client.blobs:Landing._land",),
        throw=_uploads,
    ),
    FailureProbe(
        name="offices: events that the disk does not take",
        covers=("daemon.offices.news:OfficeNews.serve", "daemon.offices.news:OfficeNews._write"),
        throw=_unwritten,
    ),
    KeptProbe(
        name="offices elsewhere: results that nobody fetches",
        covers=("office_client.blobs:BlobShelf.__init__", "office_client.blobs:BlobShelf.put"),
        attack=_results,
        bound=KEPT_BYTES + (1 << 20),
        left=KEPT_BYTES + (1 << 20),
    ),
    KeptProbe(
        name="offices: calls that are cut off, and members that come and go, without end",
        covers=("office_client.computer:Computer.__init__", "daemon.offices.news:OfficeNews.__init__"),
        attack=_cut_off,
        bound=8 << 20,
        left=8 << 20,
    ),
)
