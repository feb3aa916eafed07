"""One member of an office, or a stranger, that floods the server until it is ended: for ``offices.py``.

    python _office_flooder.py KIND URL TOKEN OFFICE_ID ROLE NAME

KIND is one of ``calls``, ``json``, ``notices`` and ``strangers``. It says "floods" once it is about to begin.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from _office_members import Member, Seat, asked

AT_ONCE = 64
"""Calls, or strangers, at one time."""
MANY_VALUES = {"x": [{"": 0}] * 16_000}
"""Some 50,000 values, which is what one event may hold."""


async def calls(member: Member) -> None:
    """Call the Computers of its office as fast as they answer, with many calls under way."""

    async def one_after_another(number: int) -> None:
        while True:
            with suppress(TimeoutError):
                await member.asks("client:tool_call", asked(member.seat.name, f"c{number % 4}", "client:tool_call"))

    await asyncio.gather(*(one_after_another(number) for number in range(AT_ONCE)))


async def large(member: Member) -> None:
    """Send requests that take long to parse, to nobody."""
    text = json.dumps(["client:tool_call", asked(member.seat.name, "nobody", "client:tool_call", MANY_VALUES)])
    while True:
        await member.socket.send(f"42/smcp,{text}")


async def notices(member: Member) -> None:
    """Tell the office again and again that its tools have changed."""
    text = json.dumps(["server:update_tool_list", {"computer": member.seat.name}])
    while True:
        await member.socket.send(f"42/smcp,{text}")


async def strangers(url: str) -> None:
    """Connect, show a token that is none, and connect again."""

    async def one_after_another() -> None:
        address = f"{url.replace('http', 'ws', 1)}/socket.io/?EIO=4&transport=websocket&a2c_version=0.4.0"
        while True:
            with suppress(OSError, WebSocketException, TimeoutError):
                async with connect(address, compression=None, proxy=None) as socket:
                    await socket.send('40/smcp,{"token":"sblt_no"}')
                    await socket.recv()
                    await socket.recv()
            await asyncio.sleep(0.01)

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))


async def main(kind: str, *words: str) -> None:
    """Flood."""
    seat = Seat(*words)
    member = None if kind == "strangers" else await Member.joined(seat)
    print("floods", flush=True)
    if member is None:
        await strangers(seat.url)
    else:
        await {"calls": calls, "json": large, "notices": notices}[kind](member)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
