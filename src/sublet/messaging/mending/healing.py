"""Keeps the database of rooms whole: mends it before it is opened, looks at it while it is used, asks for what is lost.

It is looked at soon after a start, again from time to time, and at once where SQLite says that it is damaged. What is
found then is noted beside it and mended at the next opening, for which whoever runs rooms starts them anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import structlog

from sublet.messaging.backends.blob_files import FileBlobs
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.engine.engine import Engine
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.mending.asking_again import AskingAgain, Asks
from sublet.messaging.mending.inspection import Found
from sublet.messaging.mending.looking import Looking
from sublet.messaging.mending.losses import LOST_FILE, Damage, Losses, Lost, Part
from sublet.messaging.mending.mend import Mended, Mender, SetsAside
from sublet.migrations.damage import in_words, is_damage
from sublet.protocol.ezagent.errors import Refused

FIRST_LOOK_SECONDS: Final = 3.0
"""After a start, which nothing should make slower."""
LOOK_SECONDS: Final = 6 * 3600.0
"""Between two looks at everything."""
RETRY_SECONDS: Final = 60.0
"""After a look that failed, or of which nothing could be noted, as on a full disk."""
ASK_SECONDS: Final = 2.0
LONGEST_ASK_SECONDS: Final = 600.0
"""Between two questions for what is lost, each time twice as long; a change of a link begins with the first again."""
PAUSE: Final = 24.0
"""How much longer than it works a look rests, so that it takes a twenty-fifth of one processor."""
SUMS_PAUSE: Final = 4.0
"""The same of the look at digests, which is short and tells what was lost."""
WORK_SECONDS: Final = 0.002
MAX_PAUSE_SECONDS: Final = 2.0
TELL_SECONDS: Final = 7 * 86_400.0
"""How long ``status`` tells of what was mended last."""
MAX_TRIES: Final = 2
"""How often one thing is mended in one run of the daemon; what is damaged again is told, and left."""

_TORN: Final = (Refused, ValueError, TypeError, KeyError)
"""What reading a torn row raises."""

log = structlog.get_logger(__name__)


class Healing:
    """See the module. Lives as long as the daemon, through all the times that rooms are started.

    Args:
        path: the database.
        now_ms: the clock, Unix milliseconds.
        set_aside: keeps bytes that were damaged (what they were, the bytes, why).
    """

    def __init__(self, path: Path, now_ms: Callable[[], int], set_aside: SetsAside = lambda *_: None) -> None:
        self._path = path
        self._now_ms = now_ms
        self._set_aside = set_aside
        self._losses = Losses(path.with_name(f"{path.stem}{LOST_FILE}"))
        self._look_now = anyio.Event()
        self._said = False
        """Whether SQLite has said that something is damaged, since it was looked at last."""
        self._ask_now = anyio.Event()
        self._tries: dict[tuple[Part, str], int] = {}
        self._told: list[str] = []
        self._lost: list[Lost] = []
        self._stays: dict[str, str] = {}

    def mend(self, registry: Registry, local: list[LocalEntity], *, everything: bool = False) -> Mended:
        """Mend what has to be mended before the database is opened. Blocks; does next to nothing where that is nothing.

        Args:
            registry: what is declared.
            local: our own entities.
            everything: whether all of it is looked at first, however long that takes.

        Raises:
            SubletError: ``UNAVAILABLE``: there is no room for it, or the disk fails; it can be tried again.
        """
        mender = Mender(self._path, self._losses, partial(self._over, registry, local), local, self._set_aside)
        done = mender.mend(everything=everything)
        self._lost = self._losses.lost()
        self._told = [what for at, what in self._losses.told()[-1:] if time.time() - at < TELL_SECONDS]
        return done

    def blame(self, error: BaseException, *, starting: bool) -> bool:
        """Take why rooms could not be started, or have failed; tell whether to mend and start them anew at once.

        Args:
            error: the failure.
            starting: whether they did not run yet: what was read then came from the database. Blocks on the disk.
        """
        for one in _leaves(error):
            if is_damage(one):
                return self._note(Damage(Part.PAGES, "", in_words(one)))
            if starting and isinstance(one, _TORN):
                return self._note(Damage(Part.ROWS, "", in_words(one)))
        return False

    def suspect(self) -> None:
        """Look at once, since SQLite has said that something is damaged."""
        self._said = True
        self._look_now.set()

    def lacking(self) -> None:
        """Look at once, since a document was opened that lacks what was here."""
        self._look_now.set()

    def link_changed(self) -> None:
        """Ask at once for what is lost: somebody may be there now who has it."""
        self._ask_now.set()

    def remarks(self) -> list[str]:
        """Return what people should know, one line each."""
        lines = list(self._told)
        rooms = sorted({lost.room_id for lost in self._lost if lost.room_id is not None})
        if rooms:
            shown = ", ".join(rooms[:3]) + (f" and {len(rooms) - 3} more" if len(rooms) > 3 else "")
            lines.append(
                f"of {len(self._lost)} documents in {len(rooms)} rooms ({shown}) something was lost here and is not "
                "had again yet; their members are asked whenever they are there"
            )
        return [*lines, *(f"{what} is damaged again after it was mended: {why}" for what, why in self._stays.items())]

    async def watch(self, registry: Registry, local: list[LocalEntity], asks: Asks) -> Damage:
        """Look and ask until something is found that has to be mended, which is noted and returned."""
        pace, quick = _Pace(PAUSE), _Pace(SUMS_PAUSE)
        looking = Looking(self._path, partial(self._trial, registry, local), local, pace)
        again = AskingAgain(self._losses, asks, looking.document)
        found: list[Damage] = []

        async def look(scope: anyio.CancelScope) -> None:
            found.append(await self._until_damaged(looking, asks, quick))
            scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(look, group.cancel_scope)
                group.start_soon(self._keep_asking, again)
        finally:
            pace.end()
            quick.end()
            looking.rest()
        return found[0]

    async def _keep_asking(self, again: AskingAgain) -> None:
        wait = ASK_SECONDS
        while True:
            if self._ask_now.is_set():
                wait, self._ask_now = ASK_SECONDS, anyio.Event()
            if self._lost:
                try:
                    self._lost = await again.all()
                    if not self._lost:
                        log.info("all that rooms had lost was had again from members")
                except Exception:
                    log.exception("what rooms have lost could not be asked for")
            with anyio.move_on_after(wait if self._lost else None):
                await self._ask_now.wait()
            wait = min(2 * wait, LONGEST_ASK_SECONDS)

    async def _until_damaged(self, looking: Looking, asks: Asks, quick: _Pace) -> Damage:
        wait = FIRST_LOOK_SECONDS
        while True:
            with anyio.move_on_after(wait):
                await self._look_now.wait()
            self._look_now = anyio.Event()
            wait = LOOK_SECONDS
            try:
                found = await self._look(looking, quick)
                looking.rest()
                # All of it is noted, since one start mends all that is.
                noted = [damage for damage in found if await anyio.to_thread.run_sync(self._note, damage)]
                for entity in await anyio.to_thread.run_sync(looking.unknown) if not found else ():
                    await asks.key(entity)
            except Exception:
                log.exception("the database of rooms could not be looked at")
                wait = RETRY_SECONDS
                continue
            if noted:
                return noted[0]

    async def _look(self, looking: Looking, pace: _Pace) -> list[Damage]:
        """Return what is damaged: pages before rows, rows before digests, and these before documents."""
        said, self._said = self._said, False
        for step in (looking.pages, looking.rows):
            damage = await anyio.to_thread.run_sync(step, abandon_on_cancel=True)
            if damage is not None:
                return [damage]
        damages = await anyio.to_thread.run_sync(looking.sums, pace, abandon_on_cancel=True)
        if damages:
            return damages
        lacking: list[Found] = []
        for name in await anyio.to_thread.run_sync(looking.documents, abandon_on_cancel=True):
            found = await anyio.to_thread.run_sync(looking.document, name, abandon_on_cancel=True)
            if found is not None and found.why:
                damages.append(Damage(Part.DOCUMENT, name, found.why))
            elif found is not None and found.missing:
                lacking.append(found)
        await self._lack(lacking)
        for blob in await anyio.to_thread.run_sync(looking.blobs, abandon_on_cancel=True):
            log.warning("a file of rooms was damaged and removed; whoever wants it fetches it from members", blob=blob)
        if said and not damages:
            # Such as what words are found by, which SQLite checks only as it reads them.
            return [Damage(Part.PAGES, "", "SQLite says that something in it is damaged")]
        return damages

    async def _lack(self, lacking: list[Found]) -> None:
        """Have contents asked for that are not here; nothing has to be mended for that."""
        known = {lost.doc_id for lost in self._lost}
        for found in lacking:
            name, room_id = found.document.doc_id, found.document.room_id
            if name not in known:
                why = f"{len(found.missing)} contents are missing"
                log.warning("contents of messages are missing", document=name, contents=len(found.missing))
                await anyio.to_thread.run_sync(self._losses.lose, name, room_id, why)
        if lacking:
            self._lost = await anyio.to_thread.run_sync(self._losses.lost)
            self._ask_now.set()

    def _note(self, damage: Damage) -> bool:
        """Have something mended, unless that was done too often; tell whether it will be. Blocks on the disk."""
        key = damage.part, damage.name
        log.warning("the database of rooms is damaged", part=damage.part, name=damage.name, why=damage.why)
        if self._tries.get(key, 0) >= MAX_TRIES:
            self._stays[damage.name or self._path.name] = damage.why
            return False
        self._tries[key] = self._tries.get(key, 0) + 1
        self._losses.note(damage)
        return True

    def _over(self, registry: Registry, local: list[LocalEntity], store: SqliteStore) -> Engine:
        """Return an engine over a store; no file of rooms is written by it."""
        return Engine(registry, store, local, self._now_ms, FileBlobs(self._path.with_name("blobs"), 0))

    def _trial(self, registry: Registry, local: list[LocalEntity]) -> Engine:
        return self._over(registry, local, SqliteStore(None))


class _Ended(Exception):
    """Nobody waits for the look any more."""


class _Pace:
    """Rests longer than was worked, on the thread that works.

    Args:
        pause: how much longer.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._began = time.thread_time()
        self._ended = False

    def end(self) -> None:
        """Have whatever is under way end at its next rest."""
        self._ended = True

    def __call__(self) -> None:
        if self._ended:
            raise _Ended
        worked = time.thread_time() - self._began
        if worked >= WORK_SECONDS:
            time.sleep(min(self._pause * worked, MAX_PAUSE_SECONDS))
            self._began = time.thread_time()


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]
