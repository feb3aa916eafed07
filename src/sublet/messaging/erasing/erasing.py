"""Finishes what a purge has begun: rows, files, words that are found, and what is left of them on the disk.

Rules: what is due is in the database, so whoever is killed goes on at the next start, where all tombstones are looked
at once more as well. Everything is done in small steps on the engine's thread, and files are read on another one.
Weak: what the file system keeps of blocks that are free, and what people or agents have copied elsewhere, is not here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread
import structlog

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.backends.remains import drop_kept, files_beside, holds
from sublet.messaging.declaring.operating import OperationParts
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.extensions.pictures import named_pictures
from sublet.messaging.intake.intake import Intake
from sublet.messaging.ports.blobs import BlobStore
from sublet.messaging.ports.purge_store import Due, DueRow
from sublet.messaging.ports.store import Store
from sublet.messaging.purging.purges import Purges
from sublet.messaging.rooms.here import RoomsHere
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import doc_id

AT_ONCE: Final = 256
"""Of what is due, with one call of the engine."""
SETTLED_AT_ONCE: Final = 64
AGAIN_SECONDS: Final = 30.0
"""After which it is tried once more where something could not be done, such as while others read the database."""
MAX_SHOWN: Final = 4_096
"""Profiles whose pictures stay."""

log = structlog.get_logger(__name__)


class Erases(Protocol):
    """The parts of the engine for this."""

    @property
    def blobs(self) -> BlobStore: ...

    @property
    def here(self) -> RoomsHere: ...

    @property
    def intake(self) -> Intake: ...

    @property
    def operating(self) -> OperationParts: ...

    @property
    def purges(self) -> Purges: ...

    @property
    def store(self) -> Store: ...


class Erasing:
    """See the module; on the event loop.

    Args:
        call: runs something with the engine.
        path: the database.
        fetch: asks members under a key of the bus, and returns what they answer.
    """

    def __init__(self, call: CallEngine, path: Path, fetch: Callable[[str, bytes], Awaitable[list[bytes]]]) -> None:
        self._call = call
        self._path = path
        self._fetch = fetch
        self._due = anyio.Event()

    def wake(self) -> None:
        """Have done what is due."""
        self._due.set()

    async def run(self) -> None:
        """Do what is due, and wait for more."""
        await self._settle()
        while True:
            self._due = anyio.Event()
            try:
                done = await self.everything()
            except SubletError as error:
                log.warning("what is purged could not be erased yet", why=str(error))
                done = False
            with anyio.move_on_after(None if done else AGAIN_SECONDS):
                await self._due.wait()

    async def everything(self) -> bool:
        """Do all that is due; tell whether nothing is left."""
        while await self._call(lambda engine: engine.purges.erase_some()):
            pass
        await self._call(_erase_files)
        lacking = await self._call(partial(_due, due=Due.LACKING))
        for row in lacking:
            await self._ask_again(row)
        looked_for = await self._call(partial(_due, due=Due.DISK))
        if looked_for:
            while await self._call(_tidy):
                pass
            if not await self._call(lambda engine: engine.store.purges.checkpoint()):
                return False
            await self._look_for(looked_for)
            await self._call(partial(_done, rows=looked_for))
            return len(looked_for) < AT_ONCE or await self.everything()
        return True

    async def _settle(self) -> None:
        for room_id in await self._call(lambda engine: sorted(engine.here.ids)):
            after: str | None = ""
            while after is not None:
                after = await self._call(partial(_settle_some, room_id=room_id, after=after))

    async def _look_for(self, rows: Sequence[DueRow]) -> None:
        """Look for what is left on the disk of what was erased; write the database anew where there is something."""
        marks = {row.mark for row in rows if row.mark}
        if await anyio.to_thread.run_sync(partial(holds, self._path, marks)):
            log.info("the database of rooms is written anew, without what was purged")
            await self._call(lambda engine: engine.store.purges.rewrite())
            await self._call(lambda engine: engine.store.purges.checkpoint())
        await anyio.to_thread.run_sync(partial(_drop_copies, self._path, marks, [row.name for row in rows]))

    async def _ask_again(self, row: DueRow) -> None:
        """Ask for a content that was taken away by a tombstone that counts no more."""
        raws = await self._call(partial(_naming, row=row))
        for answer in await self._fetch(doc_id("content", room_id=row.room_id, content_id=row.name), b""):
            try:
                contents = tuple(decode_bundle(answer).of(RecordKind.CONTENT)[:1])
            except Refused:
                continue
            await self._call(partial(_take, arrivals=[Arrival(raw, contents) for raw in raws]))
        await self._call(partial(_done, rows=[row]))


def _due(engine: Erases, due: Due) -> list[DueRow]:
    return engine.store.purges.due(due, AT_ONCE)


def _done(engine: Erases, rows: Sequence[DueRow]) -> None:
    with engine.store.transaction():
        engine.store.purges.drop_due(rows)


def _settle_some(engine: Erases, room_id: RoomId, after: str) -> str | None:
    return engine.purges.settle_some(room_id, after, SETTLED_AT_ONCE)


def _tidy(engine: Erases) -> bool:
    with engine.store.transaction():
        return engine.store.search.tidy()


def _take(engine: Erases, arrivals: Sequence[Arrival]) -> None:
    engine.intake.take(arrivals)


def _naming(engine: Erases, row: DueRow) -> list[bytes]:
    """Return updates that name a content: those that bring the message, whose id stands in the row's mark."""
    elements = engine.store.purges.elements(row.room_id, row.mark.decode())
    found = (engine.store.trust.update_at(document.number, *item) for document, item, _ in elements)
    return [raw for raw in found if raw is not None]


def _erase_files(engine: Erases) -> None:
    """Remove files that no room here names any more, and no profile shows as its picture."""
    rows = engine.store.purges.due(Due.FILE, AT_ONCE)
    if not rows:
        return
    shown = named_pictures(engine.operating, MAX_SHOWN)
    for row in rows:
        named = (doc_id("blob_ref", room_id=room_id, hash=row.name) for room_id in engine.here.ids)
        if row.name not in shown and not any(engine.store.find_document(name) is not None for name in named):
            engine.blobs.drop(row.name)
    _done(engine, rows)


def _drop_copies(path: Path, marks: set[bytes], names: Sequence[str]) -> None:
    """Remove copies of the database that hold what was purged, and forget what waits beside it."""
    drop_kept(path, names)
    for copy in files_beside(path):
        if holds(copy, marks):
            log.warning("a copy of the database of rooms is removed, since it holds what was purged", copy=copy.name)
            with suppress(OSError):  # it is looked at again with the next purge
                copy.unlink(missing_ok=True)
