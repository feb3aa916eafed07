"""A daemon's own database that is damaged while it is used is told of, and no more once it is sound again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.daemon.storage.soundness import Soundness
from sublet.migrations.salvage import salvage
from support.damage import flip_pages, pages_of
from support.salvage_kills import SCHEMA, make_damaged

pytestmark = pytest.mark.anyio


async def test_what_is_damaged_is_told_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    make_damaged(path)
    flip_pages(path, pages_of(path, "notes")[0])
    sound = Soundness([path, tmp_path / "missing.db"])
    for one in (path, tmp_path / "missing.db"):
        await sound._look(one)
    [line] = sound.remarks()
    assert "it.db is damaged" in line
    assert "sublet doctor --repair" in line
    salvage(path, SCHEMA, "noise")
    await sound._look(path)
    assert sound.remarks() == []
