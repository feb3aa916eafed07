"""A Socket.IO client of offices, frame by frame, and a face to speak with: without a daemon around it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from websockets.asyncio.client import ClientConnection, connect

from sublet.office_server.desk import Desk
from sublet.office_server.face import OfficeContext, OfficeFace
from sublet.offices.calls import Calls
from sublet.offices.ports import Allowed, AskedOfComputer, Refused
from sublet.offices.rules import Offices
from sublet.offices.seats import Seat
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import Role
from sublet.protocol.offices.version import parse_version

OURS: Final = "11111111-1111-4111-8111-111111111111"
OTHERS: Final = "22222222-2222-4222-8222-222222222222"
NOWHERE: Final = "33333333-3333-4333-8333-333333333333"
SECONDS: Final = 20.0


def seat(name: str, role: Role = Role.COMPUTER, office_id: str = OURS) -> Seat:
    """Return a seat whose token is called after it."""
    return Seat(office_id, "ours" if office_id == OURS else "others", role, name, f"{office_id[:1]}-{name}")


@dataclass
class Tokens:
    """Tokens by their secrets: ``1-bob`` is bob's in our office, ``2-bob`` that in the other one."""

    seats: dict[str, Seat] = field(default_factory=dict)

    @classmethod
    def usual(cls) -> Tokens:
        """Return two offices, each with an Agent and Computers."""
        made = [
            seat(name, role, office)
            for office in (OURS, OTHERS)
            for name, role in (
                ("alice", Role.AGENT),
                ("eve", Role.AGENT),
                ("bob", Role.COMPUTER),
                ("carol", Role.COMPUTER),
            )
        ]
        return cls({one.token_id: one for one in made})

    def find(self, secret: str) -> Seat | None:
        return self.seats.get(secret)


@dataclass
class Guard:
    """Allows all but tools that begin with ``denied`` or ``hidden``, and keeps what it was asked."""

    asked: list[AskedOfComputer] = field(default_factory=list)
    ended: list[str | None] = field(default_factory=list)

    async def begin(self, asked: AskedOfComputer) -> Allowed:
        self.asked.append(asked)
        if asked.tool.startswith(("denied", "hidden")):
            raise Refused("a rule denies it", hidden=asked.tool.startswith("hidden"))
        return _Ended(self.ended)


@dataclass
class _Ended:
    kept: list[str | None]

    async def ended(self, error: str | None) -> None:
        self.kept.append(error)


@dataclass
class Ears:
    """What a server tells: lets nobody in, unless it is to, and keeps who is gone."""

    lets_in: bool = False
    left: list[str] = field(default_factory=list)

    def connected(self, sid: str, secret: str) -> bool:
        return self.lets_in

    def gone(self, sid: str) -> None:
        self.left.append(sid)

    async def handle(self, sid: str, event: str, arguments: list[JsonValue]) -> JsonValue:
        return None


@dataclass
class Served:
    """A face that serves."""

    url: str
    offices: Offices
    calls: Calls
    desk: Desk
    guard: Guard
    tokens: Tokens

    async def connected(self, secret: object, **options: Any) -> Client:
        """Return a client whose token was taken."""
        client = await opened(self.url, **options)
        assert await client.authenticate(secret) is not None, "the token was refused"
        return client

    async def joined(self, secret: str) -> Client:
        """Return a client that has joined with its token."""
        client, there = await self.connected(secret), self.tokens.seats[secret]
        assert await client.join(there.name, there.role, there.office_id) == [True, None]
        return client


@asynccontextmanager
async def served(version: str = "0.4.0") -> AsyncIterator[Served]:
    """Serve two offices on a free port."""
    offices, calls, guard, tokens = Offices(), Calls(), Guard(), Tokens.usual()
    desk = Desk(offices, calls, tokens, guard)
    face = OfficeFace(OfficeContext(offices, desk, "127.0.0.1", "127.0.0.1", 0, parse_version(version), None))
    await face.start()
    async with anyio.create_task_group() as group:
        group.start_soon(face.serve)
        yield Served(face.address, offices, calls, desk, guard, tokens)
        group.cancel_scope.cancel()


async def opened(url: str, version: str | None = "0.4.0", headers: Mapping[str, str] | None = None) -> Client:
    """Return a client over a WebSocket that has shown no token yet."""
    query = "" if version is None else f"&a2c_version={version}"
    socket = await connect(
        f"{url.replace('http', 'ws', 1)}/socket.io/?EIO=4&transport=websocket{query}",
        additional_headers=headers,
        max_size=None,
        compression=None,
    )
    client = Client(socket)
    assert (await client.frame()).startswith("0{")
    return client


class Client:
    """One connection. ``seen`` are the events that it has got, in order."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {}
        """What a Computer answers, by event: an object, or a function of the request."""
        self._next = 0

    async def frame(self) -> str:
        """Return the next frame."""
        with anyio.fail_after(SECONDS):
            return str(await self.socket.recv())

    async def send(self, frame: str | bytes) -> None:
        """Send one frame as it is."""
        await self.socket.send(frame)

    async def authenticate(self, secret: object) -> str | None:
        """Show a token; return the id of the connection, or None where it is refused."""
        await self.send(f"40/smcp,{json.dumps({'token': secret})}")
        frame = await self.frame()
        if frame.startswith("44/smcp,"):
            return None
        return str(json.loads(frame.removeprefix("40/smcp,"))["sid"])

    async def call(self, event: str, *arguments: object) -> Any:
        """Send an event and return all arguments of its answer."""
        self._next += 1
        number = self._next
        await self.send(f"42/smcp,{number}{json.dumps([event, *arguments])}")
        while True:
            frame = await self.frame()
            if frame.startswith(f"43/smcp,{number}["):
                return json.loads(frame.removeprefix(f"43/smcp,{number}"))
            await self.took(frame)

    async def took(self, frame: str) -> None:
        """Answer a ping and what is asked of a Computer, and keep what is told."""
        if frame == "2":
            await self.send("3")
        elif frame.startswith("42/smcp,"):
            rest = frame.removeprefix("42/smcp,")
            number = rest[: rest.index("[")]
            event, data = json.loads(rest[len(number) :])
            self.seen.append((event, data))
            answer = self.answers.get(event)
            if number and answer is not None:
                said = answer(data) if callable(answer) else answer
                await self.send(f"43/smcp,{number}{json.dumps([said])}")

    async def serve(self) -> None:
        """Answer as a Computer until cancelled or cut off."""
        async for frame in self.socket:
            await self.took(str(frame))

    async def quiet(self, seconds: float = 0.3) -> list[tuple[str, Any]]:
        """Return what was told, once a round trip has shown that all of it has come."""
        with anyio.move_on_after(seconds):
            while True:
                await self.took(str(await self.socket.recv()))
        return self.seen

    async def join(self, name: str, role: str, office_id: str = OURS) -> Any:
        """Ask to join an office."""
        return await self.call("server:join_office", {"role": str(role), "name": name, "office_id": office_id})

    async def use(self, tool: str, computer: str = "bob", agent: str = "alice", **fields: object) -> Any:
        """Call a tool of a Computer."""
        asked = {"agent": agent, "req_id": "r1", "computer": computer, "tool_name": tool, "params": {}, "timeout": 10}
        return (await self.call("client:tool_call", {**asked, **fields}))[0]

    async def closed(self) -> None:
        """Return once the connection has ended."""
        with anyio.fail_after(SECONDS):
            await self.socket.wait_closed()


@asynccontextmanager
async def serving(client: Client) -> AsyncIterator[Client]:
    """Let a client answer as a Computer beside the body."""
    task = asyncio.get_running_loop().create_task(client.serve())
    try:
        yield client
    finally:
        task.cancel()
