"""Floods by a paired daemon that answers questions with junk or never, or reads nothing of what is published."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from attacks.flood import Flood, Target
from attacks.floods import bus
from attacks.kit.neighbour import Neighbour, identity_key
from sublet.messaging.ports.network import PeerQuery
from support.noise import noise

ROUND_SECONDS = 1.0
"""Between two links: each that opens has the daemon ask for all that it may have missed."""
REPLIES = 200
"""Answers to one question."""
JUNK_BYTES = 256
HELD = 4_096
"""Questions that the attacker holds, so that it takes no memory without end itself."""

Answers = Callable[[PeerQuery], None]


def keys_of(content: str) -> list[str]:
    """Return what the daemon asks about the room of a text, and about everything else."""
    room = content.split("/")[1] if content else "*"
    names = (
        "config/state",
        "heads",
        "root",
        "index/*/state",
        "ext/*/state",
        "content/*",
        "content/*/state",
        "delivery",
    )
    return ["ezagent/**", *(f"ezagent/{room}/{name}" for name in names)]


def _junk(query: PeerQuery) -> None:
    zenoh_query = query._query  # type: ignore[attr-defined]
    for _ in range(REPLIES):
        zenoh_query.reply(query.key, noise(JUNK_BYTES))
    query.drop()


async def _answering(target: Target, make: Callable[[], Answers]) -> None:
    key = identity_key(target.peer_home)
    answer = make()
    while True:
        link = await asyncio.to_thread(bus._link, target, key)
        try:
            for name in keys_of(target.content):
                await asyncio.to_thread(link.serve, name, answer)
            await asyncio.sleep(ROUND_SECONDS)
        finally:
            await asyncio.to_thread(link.close)


def _silent() -> Answers:
    held: deque[PeerQuery] = deque(maxlen=HELD)
    return held.append


def stops_reading(link: Neighbour) -> threading.Event:
    """Let nothing be read from a link any more until the event is set."""
    on = threading.Event()

    def wait() -> None:
        on.wait()

    link.links._jobs.append(wait)
    link.links._wake()
    return on


async def _reading_nothing(target: Target) -> None:
    key = identity_key(target.peer_home)
    while True:
        link = await asyncio.to_thread(bus._link, target, key)
        await asyncio.to_thread(link.subscribe, "ezagent/**", lambda _: None)
        on = stops_reading(link)
        try:
            await asyncio.sleep(10 * ROUND_SECONDS)
        finally:
            on.set()
            await asyncio.to_thread(link.close)


def _flood(name: str, covers: list[str], run: Callable[[Target], Awaitable[None]]) -> Flood:
    return Flood(name=f"bus: {name}", who="peer", covers=covers, run=run)


FLOODS = (
    _flood(
        "questions that get junk",
        ["messaging.syncing.asking:Asking.ask", "messaging.syncing.shares:Shares.failed"],
        partial(_answering, make=lambda: _junk),
    ),
    _flood(
        "questions that get no answer",
        ["messaging.syncing.asking:Asking.ask", "messaging.syncing.shares:Shares.failed"],
        partial(_answering, make=_silent),
    ),
    _flood("a reader that takes nothing", ["messaging.links.link:HoldingWay.move"], _reading_nothing),
)
