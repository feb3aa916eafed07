"""Members of offices for ``offices.py``: raw clients, the same for every server, so that the servers are measured."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

TOOL = "notes__add"
RESULT = {"content": [{"type": "text", "text": "5" * 200}], "isError": False}
ANSWERS: dict[str, dict[str, Any]] = {
    "client:tool_call": RESULT,
    "client:get_tools": {"tools": [], "req_id": ""},
}
CALL_SECONDS = 30.0
JOINING = 16
"""Members that join at one time."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Who is to sit where, and what it shows for that."""

    url: str
    token: str
    office_id: str
    role: str
    name: str


class Member:
    """One connection that has joined an office."""

    def __init__(self, seat: Seat, socket: ClientConnection) -> None:
        self.seat = seat
        self.socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def joined(cls, seat: Seat) -> Member:
        """Return a member that has joined.

        Raises:
            RuntimeError: it was refused.
        """
        address = seat.url.replace("http", "ws", 1)
        query = "EIO=4&transport=websocket&a2c_version=0.4.0"
        socket = await connect(f"{address}/socket.io/?{query}", max_size=None, compression=None, proxy=None)
        await socket.recv()
        await socket.send(f"40/smcp,{json.dumps({'token': seat.token})}")
        if not str(said := await socket.recv()).startswith("40/smcp,"):
            raise RuntimeError(f"{seat.name} was refused: {said!r}")
        member = cls(seat, socket)
        member._reading = asyncio.create_task(member._read())
        told = await member.asks(
            "server:join_office", {"role": seat.role, "name": seat.name, "office_id": seat.office_id}
        )
        if told[0] is not True:
            raise RuntimeError(f"{seat.name} may not join: {told}")
        return member

    async def asks(self, event: str, data: object) -> Any:
        """Send an event and return all arguments of its answer."""
        number = str(next(self._numbers))
        self._waiting[number] = answered = asyncio.get_running_loop().create_future()
        await self.socket.send(f"42/smcp,{number}{json.dumps([event, data])}")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await answered
        finally:
            self._waiting.pop(number, None)

    async def calls(self, computer: str, event: str = "client:tool_call", params: object = None) -> float:
        """Ask a Computer something and return the seconds until it is answered.

        Raises:
            RuntimeError: the answer is not that of the Computer.
        """
        request = asked(self.seat.name, computer, event, params)
        begun = time.perf_counter()
        (answer,) = await self.asks(event, request)
        took = time.perf_counter() - begun
        if "code" in answer or answer.get("isError"):
            raise RuntimeError(f"{computer} has not answered: {answer}")
        return took

    async def leaves(self) -> None:
        """End the connection."""
        if self._reading is not None:
            self._reading.cancel()
        with suppress(ConnectionClosed):
            await self.socket.close()

    async def _read(self) -> None:
        with suppress(ConnectionClosed):
            async for frame in self.socket:
                await self._took(str(frame))

    async def _took(self, frame: str) -> None:
        if frame == "2":
            await self.socket.send("3")
        elif frame.startswith("43/smcp,"):
            number, _, rest = frame.removeprefix("43/smcp,").partition("[")
            waiting = self._waiting.get(number)
            if waiting is not None and not waiting.done():
                waiting.set_result(json.loads(f"[{rest}"))
        elif frame.startswith("42/smcp,"):
            number, _, rest = frame.removeprefix("42/smcp,").partition("[")
            event, data = json.loads(f"[{rest}")
            if number and event in ANSWERS:
                said = ANSWERS[event]
                said = {**said, "req_id": data["req_id"]} if "req_id" in said else said
                await self.socket.send(f"43/smcp,{number}{json.dumps([said])}")


_requests = itertools.count(1)


def asked(agent: str, computer: str, event: str, params: object = None) -> dict[str, object]:
    """Return what an Agent sends to ask a Computer something."""
    request: dict[str, object] = {"agent": agent, "req_id": f"r{next(_requests)}", "computer": computer}
    if event == "client:tool_call":
        given = {"a": 2, "b": 3, "why": "as it is needed"} if params is None else params
        request |= {"tool_name": TOOL, "params": given, "timeout": 30}
    return request


async def all_joined(seats: Sequence[Seat]) -> list[Member]:
    """Return a member for each seat, in order."""
    few = asyncio.Semaphore(JOINING)

    async def joined(seat: Seat) -> Member:
        async with few:
            return await Member.joined(seat)

    return list(await asyncio.gather(*(joined(seat) for seat in seats)))
