"""The turnstile of a listener: hundreds of connections that begin and end at one moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio

from attacks.probe import CostProbe, KeptProbe, Probe
from sublet.turns import Turnstile

CALLERS_OF_BYTES = 64
"""A caller for so many bytes, as little as a connection costs who opens it."""


async def _come_and_go(turnstile: Turnstile, callers: int) -> None:
    """Let callers come, every second of which is gone before its turn."""
    tasks = [asyncio.create_task(turnstile.passed()) for _ in range(callers)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


def _run(callers: int) -> None:
    anyio.run(_come_and_go, Turnstile(), callers)


@contextmanager
def _flooded() -> Iterator[object]:
    turnstile = Turnstile()
    anyio.run(_come_and_go, turnstile, 2_000)
    yield turnstile


PROBES: list[Probe] = [
    CostProbe(
        name="turnstile: callers that come and are gone",
        covers=["turns:Turnstile.passed", "turns:Turnstile._open"],
        make=lambda size: size // CALLERS_OF_BYTES,
        run=_run,
        most=1 << 20,
    ),
    KeptProbe(
        name="turnstile: callers that are gone",
        covers=["turns:Turnstile.__init__"],
        attack=_flooded,
    ),
]
