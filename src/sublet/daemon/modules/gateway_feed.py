"""Feeds output gateways: of all that happens, what their rules name, in order and at least once (SuperAgent 8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.storage.journal import Journal
from sublet.disk.durable import write_durably
from sublet.disk.plain_file import read_plain
from sublet.policy.decision import Action, Resource, Subject
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event
from sublet.protocol.text import clean_line
from sublet.supervisor.gateways.feed_rules import wanted
from sublet.supervisor.gateways.module_file import GatewayModule

OWNER: Final = Subject("human")
PAGE: Final = 100
WAIT_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 1.0
MAX_CURSOR_BYTES: Final = 32

log = structlog.get_logger(__name__)

Deliver = Callable[[str, JsonValue], Awaitable[JsonValue]]
"""Has a gateway, by its id, deliver a message."""
Connected = Callable[[str], Awaitable[None]]
"""Waits a while for a gateway to be connected, by its id."""


class GatewayFeed:
    """Follows the journal for one gateway at a time.

    What was delivered is kept durably, so that a restart goes on where the last one ended: an event may come twice
    (its ``seq`` tells), and none is left out.

    Args:
        journal: is followed.
        gate: is asked before anything is delivered.
        state_dir: where the place of each gateway is kept.
    """

    def __init__(self, journal: Journal, gate: Gatekeeper, state_dir: Path) -> None:
        self._journal = journal
        self._gate = gate
        self._state_dir = state_dir

    async def run(self, module: GatewayModule, deliver: Deliver, connected: Connected) -> None:
        """Deliver until cancelled; what a gateway refuses is left out and told, what it can't take now waits."""
        path = self._state_dir / f"{module.id}.cursor"
        cursor = await asyncio.to_thread(_read, path)
        if cursor is None:
            cursor = await self._journal.events.newest_event()
            await asyncio.to_thread(_write, path, cursor)
        while True:
            try:
                page = await self._journal.events.wait_for_events(cursor, timeout=WAIT_SECONDS, limit=PAGE)
            except SubletError as error:
                log.warning("a gateway is not fed now", gateway=module.id, reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for event in page.events:
                if wanted(module.feed, event) and self._may(module, event):
                    await self._delivered(module, event, deliver, connected)
                    await asyncio.to_thread(_write, path, event.seq)
            cursor = page.cursor

    def _may(self, module: GatewayModule, event: Event) -> bool:
        """Tell whether policy lets the gateway have the event. Nothing is written down: nobody has tried anything."""
        resource = Resource(module.id, {"event": str(event.kind)})
        return self._gate.foresee(OWNER, Action.MODULE_DISPATCH, resource).decision.allowed

    async def _delivered(self, module: GatewayModule, event: Event, deliver: Deliver, connected: Connected) -> None:
        message: JsonValue = {"event": event.model_dump(mode="json", by_alias=True)}
        while True:
            began = time.monotonic()
            try:
                await deliver(module.id, message)
                return
            except SubletError as error:
                if error.code != LocalCode.UNAVAILABLE:
                    reason = clean_line(str(error), 300)
                    log.warning("a gateway refused an event", gateway=module.id, seq=event.seq, reason=reason)
                    return
            await connected(module.id)
            if time.monotonic() - began < RETRY_SECONDS:
                # It is there and takes nothing, or is not to be there.
                await asyncio.sleep(RETRY_SECONDS)


def _read(path: Path) -> int | None:
    try:
        return int(read_plain(path, MAX_CURSOR_BYTES, follow=False))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.error("it is not known what a gateway was told; it begins with what happens now", reason=str(error))
        return None


def _write(path: Path, cursor: int) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, str(cursor).encode())
    except OSError as error:
        # It goes on all the same: after a restart some come twice, and none is left out.
        log.warning("what a gateway was told can't be kept", path=str(path), reason=error.strerror)
