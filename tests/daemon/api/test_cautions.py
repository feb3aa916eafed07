"""What is told of a mount: whole-second times where there is something to build, locks where a database was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.daemon.api.cautions import cautions
from sublet.daemon.lending.build_files import build_files
from support.lender import lender


def test_case_d07_build_files_are_found_and_named_with_a_way_around(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "build.ninja").touch()
    (tmp_path / "makefile").symlink_to("Makefile")
    assert build_files([str(tmp_path), str(tmp_path / "absent")]) == ["Makefile"]
    [told] = cautions("sshfs", ["Makefile"], [])
    assert told.startswith("Makefile: ")
    assert "--transport archive" in told
    assert cautions("archive", ["Makefile"], ["app.db"]) == []
    assert cautions("sshfs", [], ["notes.txt", "dbs/readme"]) == []


def test_case_d06_databases_that_were_changed_are_named() -> None:
    [told] = cautions("sshfs", [], ["z.db", "data/app.sqlite3-wal", "b.sqlite", "a.db3", "c.txt"])
    assert told.startswith("a.db3, b.sqlite, data/app.sqlite3-wal and 1 more: file locks do not pass through a mount")


@pytest.mark.anyio
async def test_a_delegation_says_so_once_it_is_known_to_be_a_mount(tmp_path: Path) -> None:
    async with lender(tmp_path) as side:
        (side.project / "Makefile").write_text("all:\n")
        running = await side.running()
        view = await side.delegator.view(running)
        assert view.transport == "sshfs"
        assert [told.partition(":")[0] for told in view.cautions] == ["Makefile"]
        side.link.done(running)
        await side.settled(running)
