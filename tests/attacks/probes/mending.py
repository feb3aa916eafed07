"""Disks that fail, and damage that is found, while databases are looked at and mended."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import anyio

from attacks.kit.broken_disk import fail_each
from attacks.kit.within import within
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from sublet.daemon.peering.homes import MAX_REFUSED, Homes
from sublet.daemon.peering.peers import Peer
from sublet.daemon.rooms.running_rooms import RunningRooms
from sublet.daemon.storage import soundness
from sublet.daemon.storage.soundness import Soundness
from sublet.messaging.backends.sqlite_file import open_database
from sublet.messaging.backends.sqlite_rows import SqliteRows
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.mending import healing
from sublet.messaging.mending.asking_again import Asks
from sublet.messaging.mending.healing import Healing
from sublet.messaging.mending.looking import Looking
from sublet.messaging.mending.losses import Damage, Losses, Part
from sublet.migrations import damage
from sublet.migrations.salvage import salvage
from support.damage import flip_pages, pages_of
from support.digests import write_documents
from support.salvage_kills import ROWS, SCHEMA, make_damaged, rows


async def repaired(base: Path) -> None:
    """Make a damaged database anew; one in which that has failed before is gone on with."""
    path = base / "state" / "it.db"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        make_damaged(path)
        for number in (5, 6):  # as many as are kept, so that one goes
            path.with_name(f"it.db.damaged-{number}").touch()
    for _ in range(2):  # once more, as an interrupted one is gone on with
        if await asyncio.to_thread(damage.first, path):
            await asyncio.to_thread(salvage, path, SCHEMA, "noise")
    assert rows(path) > ROWS - 60
    assert damage.look(path) == ""
    shutil.rmtree(path.parent)


async def noted(base: Path) -> None:
    """Note what is damaged and lost, and that it is mended."""
    losses = Losses(base / "lost.db")
    found = Damage(Part.PAGES, "", "noise")
    await asyncio.to_thread(losses.note, found)
    assert found in await asyncio.to_thread(losses.due)
    await asyncio.to_thread(losses.mended, [found])
    assert await asyncio.to_thread(losses.due) == []


async def _a_disk_that_fails() -> None:
    with tempfile.TemporaryDirectory(prefix="slt-") as place:
        met = await fail_each(repaired, Path(place), ["migrations."])
        assert {"migrations.salvage:salvage", "migrations.salvage:_remove"} <= met, met
    with tempfile.TemporaryDirectory(prefix="slt-") as place:
        met = await fail_each(noted, Path(place), ["messaging.mending."])
        assert "messaging.mending.losses:Losses._connected" in met, met


async def _a_look_that_fails() -> None:
    """A look that fails is logged, and the next one goes on; what it finds is noted and ends the watch."""
    found = Damage(Part.PAGES, "", "noise")
    answers: list[Damage | Exception] = [RuntimeError("odd"), found]

    def pages(_: Looking) -> Damage | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(*_: object) -> list[bytes]:
        raise RuntimeError("nobody can be asked")

    with tempfile.TemporaryDirectory(prefix="slt-") as place:
        watched = Healing(Path(place) / "it.db", lambda: 0)
        watched._losses.lose("ezagent/x/config", None, "odd")
        watched._lost = watched._losses.lost()
        with (
            patch.object(Looking, "pages", pages),
            patch.object(healing, "FIRST_LOOK_SECONDS", 0.0),
            patch.object(healing, "RETRY_SECONDS", 0.0),
        ):
            with anyio.fail_after(30):
                noted = await watched.watch(Registry(BUILT_INS), [], Asks(ask, ask, ask, ask))  # type: ignore[arg-type]
        assert noted == found
        assert watched._losses.due() == [found]


async def _a_store_that_is_damaged() -> None:
    with tempfile.TemporaryDirectory(prefix="slt-") as place:
        path = Path(place) / "it.db"
        make_damaged(path)
        flip_pages(path, pages_of(path, "notes")[0])
        sound = Soundness([Path(place) / "missing.db", path])
        with patch.object(soundness, "FIRST_LOOK_SECONDS", 0.0), anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(sound.serve)
                while not sound.remarks():
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
        assert ["it.db" in line for line in sound.remarks()] == [True]
        salvage(path, SCHEMA, "noise")
        await sound._look(path)
        assert sound.remarks() == []


async def _a_watch_that_fails() -> None:
    """What runs beside a watch ends with it, and the failure is told to who opens rooms anew."""
    ended = anyio.Event()

    async def beside() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def watch(*_: object) -> Damage:
        raise RuntimeError("odd")

    service = SimpleNamespace(on_engine=None, asking=SimpleNamespace(document=None, key=None), fetch=None)
    running: Any = RunningRooms(service, None, SimpleNamespace(watch=watch), None, [])  # type: ignore[arg-type]
    with anyio.fail_after(30), contextlib.suppress(ExceptionGroup):
        await running.until_damaged(beside)
        raise AssertionError("the failure is told")
    assert ended.is_set()


@asynccontextmanager
async def _homes(place: Path) -> AsyncIterator[object]:
    """Let a peer show itself from one home after the other, beside the one that it has."""
    peer = Peer("bob", bytes(32), None, None)
    homes = Homes(place / "homes.json", lambda _: peer)
    for number in range(20 * MAX_REFUSED):
        said = f"{number:016x}"
        homes.opened("node", said)
        homes.admits("node", said)
    yield homes


def _torn(size: int) -> SqliteRows:
    database = open_database(None)
    database.executemany(
        "INSERT INTO events VALUES (?, 'odd', NULL, ?)", [(number, "{" * 80) for number in range(size // 100)]
    )
    return SqliteRows(database)


def _digests(size: int) -> SqliteStore:
    """Return rooms with that many documents, and their digests."""
    store = SqliteStore(None)
    write_documents(store, "0190a7c2-0000-7000-8000-000000000001", size)
    return store


def _looked_at(store: SqliteStore) -> None:
    assert [one for one in store.rows().sums().wrong() if one is not None] == []
    with store.transaction():
        store.rows().sums().mend("0190a7c2-0000-7000-8000-000000000001")


PROBES: tuple[Probe, ...] = (
    CostProbe(
        name="mending: digests that are compared with the log",
        covers=(
            "messaging.backends.sqlite_sums:SqliteSums._documents",
            "messaging.backends.sqlite_sums:SqliteSums._leaves",
            "messaging.backends.sqlite_sums:SqliteSums._nodes",
            "messaging.backends.sqlite_sums:SqliteSums.mend",
        ),
        make=_digests,
        run=_looked_at,
        size=1_000,
    ),
    CostProbe(
        name="mending: rows that are torn",
        covers=("messaging.backends.sqlite_rows:SqliteRows.torn",),
        make=_torn,
        run=lambda rows: list(rows.torn()),
        size=100_000,
    ),
    KeptProbe(
        name="peers: one that shows itself from ever new homes",
        covers=("daemon.peering.homes:Homes._refuse",),
        attack=lambda: within(_homes),
        bound=1 << 20,
        left=1 << 20,
    ),
    FailureProbe(
        name="mending: a watch that fails",
        covers=("daemon.rooms.running_rooms:RunningRooms.until_damaged",),
        throw=_a_watch_that_fails,
    ),
    FailureProbe(
        name="mending: a disk that fails at each place of a repair",
        covers=[
            "messaging.mending.losses:Losses._connected",
            "migrations.damage:look",
            "migrations.salvage:_Copy._by_number",
            "migrations.salvage:_Copy._read",
            "migrations.salvage:_grows_small",
            "migrations.salvage:_remove",
            "migrations.salvage:_sync",
            "migrations.salvage:finish",
            "migrations.salvage:salvage",
        ],
        throw=_a_disk_that_fails,
    ),
    FailureProbe(
        name="mending: a look that fails, and one that finds damage",
        covers=[
            "messaging.mending.healing:Healing._keep_asking",
            "messaging.mending.healing:Healing._until_damaged",
            "messaging.mending.healing:Healing.watch",
        ],
        throw=_a_look_that_fails,
    ),
    FailureProbe(
        name="mending: a store that is damaged while it is used",
        covers=["daemon.storage.soundness:Soundness._look", "daemon.storage.soundness:Soundness.serve"],
        throw=_a_store_that_is_damaged,
    ),
)
