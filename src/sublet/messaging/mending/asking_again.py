"""Asks members for what was lost of documents here, until nothing is missing; on the event loop.

Rules: what a member answers is verified like live updates. What was kept beside since it builds on something missing is
taken once that is here. Weak: whether members have told everything is known by their answering at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

import anyio
import anyio.to_thread

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.intake.intake import Intake
from sublet.messaging.mending.inspection import Found
from sublet.messaging.mending.losses import Losses, Lost
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import ContentId, EntityId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.decode import decode_update

CONTENTS_AT_ONCE: Final = 256
"""Contents of one document that are asked for before others have their turn."""
MAX_LACKING: Final = 16
"""Documents of which it is remembered which contents they lack, and that are not looked at again for these."""


class TakesAgain(Protocol):
    """The parts of the engine for this."""

    @property
    def here(self) -> RoomsHere: ...

    @property
    def intake(self) -> Intake: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def store(self) -> Store: ...


@dataclass(frozen=True, slots=True)
class Asks:
    """How members are asked.

    Args:
        call: runs something with the engine.
        document: asks for what a document lacks until nobody has more.
        key: asks for the key of an entity.
        fetch: asks under a key of the bus, and returns what is answered.
    """

    call: CallEngine
    document: Callable[[str], Awaitable[object]]
    key: Callable[[EntityId], Awaitable[None]]
    fetch: Callable[[str, bytes], Awaitable[list[bytes]]]


class AskingAgain:
    """See the module.

    Args:
        losses: what is asked for.
        asks: how.
        look: returns what is wrong with a document; blocks.
    """

    def __init__(self, losses: Losses, asks: Asks, look: Callable[[str], Found | None]) -> None:
        self._losses = losses
        self._asks = asks
        self._look = look
        self._lacking: dict[str, Found] = {}
        """Documents that lack contents alone: a member may name some that nobody has, and each look costs the log."""

    async def all(self) -> list[Lost]:
        """Ask for everything that is lost; return of which documents something is missing still."""
        # A config first, since it says who may be asked for the rest.
        lost = sorted(await anyio.to_thread.run_sync(self._losses.lost), key=_is_no_config)
        return [one for one in lost if not await self._one(one)]

    async def _one(self, lost: Lost) -> bool:
        """Ask for one document; tell whether it is whole now."""
        name, room_id = lost.doc_id, lost.room_id
        if room_id is not None and not await self._asks.call(partial(_is_wanted, room_id=room_id)):
            await anyio.to_thread.run_sync(partial(self._losses.found, name, whole=True))  # nobody here wants it
            return True
        await self._asks.document(name)
        kept = await anyio.to_thread.run_sync(self._losses.kept, name)
        waits = await self._asks.call(partial(_take, name=name, kept=kept))
        found = self._lacking.pop(name, None) if not kept else None
        if found is None:
            found = await anyio.to_thread.run_sync(self._look, name, abandon_on_cancel=True)
        if found is not None and found.missing and room_id is not None:
            for content_id, raw in islice(found.missing.items(), CONTENTS_AT_ONCE):
                await self._content(room_id, content_id, raw)
            if not found.why:
                found.missing = await self._asks.call(partial(_not_here, room_id=room_id, contents=found.missing))
                if 0 < len(found.missing) <= CONTENTS_AT_ONCE and len(self._lacking) < MAX_LACKING:
                    self._lacking[name] = found
            else:
                found = await anyio.to_thread.run_sync(self._look, name, abandon_on_cancel=True)
        heard = room_id is None or bool(await self._asks.fetch(doc_id("root", room_id=room_id), b""))
        whole = heard and not waits and not (found is not None and (found.missing or found.why))
        await anyio.to_thread.run_sync(partial(self._losses.found, name, left=waits, whole=whole))
        return whole

    async def _content(self, room_id: str, content_id: ContentId, raw: bytes) -> None:
        """Ask for a content, and have it taken with the update that names it."""
        for answer in await self._asks.fetch(doc_id("content", room_id=room_id, content_id=content_id), b""):
            try:
                contents = tuple(decode_bundle(answer).of(RecordKind.CONTENT)[:1])
            except Refused:
                continue
            await self._asks.call(partial(_take_content, arrival=Arrival(raw, contents)))


def _is_no_config(lost: Lost) -> bool:
    return not lost.doc_id.endswith("/config")


def _is_wanted(engine: TakesAgain, room_id: str) -> bool:
    """Take a room up whose config may be what was lost; tell whether any of ours is in it, or may be."""
    if engine.store.removal.is_forgotten(room_id):
        return False
    engine.here.want(room_id)
    state = engine.rooms.state(room_id)
    return state.creator is None or any(engine.here.is_member(entity, room_id) for entity in engine.keyring.local)


def _not_here(engine: TakesAgain, room_id: str, contents: dict[ContentId, bytes]) -> dict[ContentId, bytes]:
    """Return those of some contents that are still missing."""
    return {one: raw for one, raw in contents.items() if engine.store.content(room_id, one) is None}


def _take_content(engine: TakesAgain, arrival: Arrival) -> None:
    engine.intake.take([arrival])


def _take(engine: TakesAgain, name: str, kept: Sequence[bytes]) -> list[bytes]:
    """Have updates taken that were here before; return those that wait still."""
    engine.intake.take([Arrival(raw) for raw in kept])
    row = engine.store.find_document(name)
    clients = engine.store.clients(row.number) if row is not None else {}
    waits: list[bytes] = []
    for raw in kept:
        update = decode_update(unpack(raw).payload)
        if update.items and clients.get(update.client, (0, ""))[0] < update.end:
            waits.append(raw)
    return waits
