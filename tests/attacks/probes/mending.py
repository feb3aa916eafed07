"""Disks that fail, and damage that is found, while databases are looked at and mended."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

import anyio

from attacks.kit.broken_disk import fail_each
from attacks.probe import FailureProbe, Probe
from sublet.daemon.storage.soundness import Soundness
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
        sound = Soundness([path, Path(place) / "missing.db"])
        await sound._look(path)
        await sound._look(Path(place) / "missing.db")
        assert ["it.db" in line for line in sound.remarks()] == [True]
        salvage(path, SCHEMA, "noise")
        await sound._look(path)
        assert sound.remarks() == []


PROBES: tuple[Probe, ...] = (
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
        covers=["daemon.storage.soundness:Soundness._look"],
        throw=_a_store_that_is_damaged,
    ),
)
