"""Floods of the server of offices: by strangers, and by whoever has the tokens of an Agent and of a Computer."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from attacks.flood import Flood, Target
from support.office_client import Client

ERRORS: Final = (OSError, WebSocketException, TimeoutError, AssertionError, ValueError, KeyError)
"""What comes of being refused or cut off."""
PAUSE: Final = 0.01
UNDER_WAY: Final = 64
BLOB: Final = base64.b64encode(bytes(2_900_000)).decode()
MANY: Final = {"x": [{"": 0}] * 16_000}
"""Close to the most values that one event may hold."""

Member = Callable[[Client, Client, str], Awaitable[None]]


def _address(target: Target) -> str:
    return f"{target.office.url.replace('http', 'ws', 1)}/socket.io/?EIO=4&transport=websocket&a2c_version=0.4.0"


def opened(target: Target) -> connect:
    """Return a connection to the office's server, once it is awaited or entered."""
    return connect(_address(target), max_size=None, compression=None, proxy=None)


async def _strangers(target: Target) -> None:
    """Show a token that is none, as often as it is taken."""
    while True:
        with contextlib.suppress(*ERRORS):
            async with opened(target) as socket:
                for _ in range(16):
                    await socket.send('40/smcp,{"token":"sblt_' + "x" * 1_000 + '"}')
                    await socket.recv()
        await asyncio.sleep(PAUSE)


async def _silent(target: Target) -> None:
    """Open sessions, half of a frame each, and say nothing more."""
    while True:
        with contextlib.suppress(*ERRORS):
            async with opened(target) as socket:
                # The rest of a text of 16,000 bytes never comes.
                socket.transport.write(b"\x81\xfe\x3e\x80" + bytes(4) + b"x" * 15_000)
                await socket.wait_closed()
        await asyncio.sleep(PAUSE)


def _members(work: Member) -> Callable[[Target], Awaitable[None]]:
    """Return the flood of an Agent and a Computer, which come again whenever they are cut off."""

    async def run(target: Target) -> None:
        place = target.office
        while True:
            with contextlib.suppress(*ERRORS, ExceptionGroup):
                async with opened(target) as one, opened(target) as other:
                    agent = await joined(one, place.agent, "mallory", "agent", place.office_id)
                    computer = await joined(other, place.computer, "machine", "computer", place.office_id)
                    await work(agent, computer, place.office_id)
            await asyncio.sleep(PAUSE)

    return run


async def joined(socket: ClientConnection, token: str, name: str, role: str, office_id: str) -> Client:
    """Return a member that has joined."""
    client = Client(socket)
    await client.frame()
    assert await client.authenticate(token) is not None
    assert (await client.join(name, role, office_id))[0] is True
    return client


_numbers = itertools.count(1)


def _asked(event: str, **fields: object) -> str:
    """Return the frame in which an Agent asks its Computer for something."""
    number = next(_numbers)
    request: dict[str, object] = {"agent": "mallory", "req_id": f"r{number}", "computer": "machine", **fields}
    return f"42/smcp,{number}{json.dumps([event, request])}"


async def _calls(agent: Client, computer: Client, _: str) -> None:
    """Have many calls under way, each of as many values as it may have, which nobody answers."""
    call = {"tool_name": "t", "params": MANY, "timeout": 3_600}
    await _both(agent, computer, lambda: agent.send(_asked("client:tool_call", **call)), {})


async def _blobs(agent: Client, computer: Client, _: str) -> None:
    """Ask for blobs again and again, and read none of what comes."""
    answers = {"client:get_blob": lambda asked: {"blob": BLOB, "req_id": asked["req_id"]}}
    frames = [_asked("client:get_blob", blob_handle="h") for _ in range(UNDER_WAY)]
    for frame in frames:
        await agent.send(frame)
    computer.answers = answers
    await computer.serve()


async def _uploads(agent: Client, computer: Client, _: str) -> None:
    """Send pieces of uploads to a Computer that reads none of them."""
    while True:
        await agent.send(
            _asked("client:put_blob", chunk_offset=0, eof=False, blob=BLOB, total_size=1 << 30, sha256="0")
        )


async def _notices(agent: Client, computer: Client, _: str) -> None:
    """Tell again and again of changes that there are not, and cancel calls that there are not."""
    told = json.dumps(["server:update_tool_list", {"computer": "machine"}])
    cancels = json.dumps(["server:tool_call_cancel", {"agent": "mallory", "req_id": "r"}])

    async def of_agent() -> None:
        while True:
            await agent.send(f"42/smcp,{cancels}")

    await _both(agent, computer, lambda: computer.send(f"42/smcp,{told}"), {}, of_agent())


async def _coming_and_going(agent: Client, computer: Client, office_id: str) -> None:
    """Join and leave without end: each is told to all others."""
    while True:
        for client, name, role in ((agent, "mallory", "agent"), (computer, "machine", "computer")):
            await client.call("server:leave_office", {"office_id": office_id})
            await client.join(name, role, office_id)


async def _both(
    agent: Client,
    computer: Client,
    send: Callable[[], Awaitable[None]],
    answers: dict[str, Any],
    *more: Awaitable[None],
) -> None:
    """Send without end, and read what comes to both."""

    async def sends() -> None:
        while True:
            await send()

    computer.answers = answers
    await asyncio.gather(sends(), agent.serve(), computer.serve(), *more)


_DOOR = [
    "office_server.gate:Gate._look",
    "office_server.lines:Lines.overdue",
    "office_server.openings:Openings.may_open",
]
_CALLS = ["office_server.desk:Desk._relay", "offices.calls:Calls.begin", "protocol.offices.wire:with_text"]

FLOODS = (
    Flood(name="offices: tokens of strangers", who="stranger", covers=_DOOR, run=_strangers, waves=32),
    Flood(name="offices: silent strangers", who="stranger", covers=_DOOR, run=_silent, waves=256),
    Flood(name="offices: calls of many values", who="member", covers=_CALLS, run=_members(_calls)),
    Flood(
        name="offices: blobs that are not read",
        who="member",
        covers=[*_CALLS, "office_server.lines:Line.owe"],
        run=_members(_blobs),
    ),
    Flood(
        name="offices: uploads that are not read",
        who="member",
        covers=[*_CALLS, "office_server.lines:Line.has_room"],
        run=_members(_uploads),
    ),
    Flood(
        name="offices: notices and cancels",
        who="member",
        covers=["offices.rules:Offices.update", "office_server.lines:Pace.wait"],
        run=_members(_notices),
    ),
    Flood(
        name="offices: coming and going",
        who="member",
        covers=["offices.rules:Offices.join", "offices.rules:Offices.leave"],
        run=_members(_coming_and_going),
    ),
)
