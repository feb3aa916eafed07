"""Floods by a paired daemon that declares to Zenoh as much as it can: places where it hears and answers, and tokens."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

from attacks.flood import Flood, Target
from attacks.floods import bus
from attacks.kit.neighbour import Declarer, identity_key

BURST = 256
ROUND_SECONDS = 0.05
"""After a link that was cut: Zenoh calls again by itself, and what was declared is declared to each that opens."""


async def _declaring(target: Target, kind: str, *, takes_back: bool = False) -> None:
    key, called = identity_key(target.peer_home), bus._called(target.peer_home)
    while True:
        link = await asyncio.to_thread(Declarer, key, called, bus._port(target))
        try:
            for number in itertools.count():
                await asyncio.to_thread(_burst, link, kind, number)
                if takes_back:
                    await asyncio.to_thread(link.take_back)
                if number > 64:
                    break
        finally:
            await asyncio.to_thread(link.close)
        await asyncio.sleep(ROUND_SECONDS)


def _burst(link: Declarer, kind: str, number: int) -> None:
    for one in range(BURST):
        link.declare(kind, f"ezagent/01a2212b-1000-7167-9394-{number:06}{one:06}/x")


FLOODS = [
    Flood(
        name=f"bus: {name}",
        who="peer",
        covers=["messaging.links.link:Way.move", "messaging.links.batches:BatchReader.feed"],
        run=run,
    )
    for name, run in (
        ("places to hear without end", partial(_declaring, kind="subscriber")),
        ("places to answer without end", partial(_declaring, kind="queryable")),
        ("tokens without end", partial(_declaring, kind="token")),
        ("tokens that come and go", partial(_declaring, kind="token", takes_back=True)),
    )
]
