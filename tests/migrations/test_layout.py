"""Files of the state directory: their version, the copies, and a change that goes on where it was killed."""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from sublet.migrations import layout as layout_module
from sublet.migrations.database import KEPT_COPIES
from sublet.migrations.layout import VERSION_FILE, Layout, LayoutFiles, LayoutStep, Written
from sublet.protocol.errors import LocalCode, SubletError

FIRST = Layout(1, (), 1, "used")


def drop(directory: Path) -> None:
    """Remove the key."""
    (directory / "keys" / "old").unlink(missing_ok=True)


SECOND = Layout(2, (LayoutStep(2, "the key goes", ("keys/old", "keys/never"), drop),), 1, "used")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state directory of before there was a version file."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "old").write_text("key")
    (tmp_path / "used").touch()
    return tmp_path


def bring(state: Path, layout: Layout, program: str = "2.0") -> LayoutFiles:
    """Bring the files to a layout."""
    files = LayoutFiles(state, layout, program)
    found = files.check()
    if found is not None:
        files.copy(found)
    files.migrate(found)
    return files


def test_a_new_directory_says_this_layout(tmp_path: Path) -> None:
    assert LayoutFiles(tmp_path, SECOND, "2.0").check() is None
    bring(tmp_path, SECOND)
    assert json.loads((tmp_path / VERSION_FILE).read_text()) == {"layout": 2, "sublet": "2.0"}
    assert not list(tmp_path.glob("files.*"))


def test_one_without_a_version_is_the_first_and_is_brought_up(state: Path) -> None:
    files = bring(state, SECOND)
    assert not (state / "keys" / "old").exists()
    assert (state / "files.v1" / "keys" / "old").read_text() == "key"
    assert files.read() == Written(2, "2.0")


def test_the_copy_of_before_a_kill_is_kept(state: Path) -> None:
    files = LayoutFiles(state, SECOND, "2.0")
    first = files.check()
    assert first is not None
    files.copy(first)
    drop(state)  # and killed here
    bring(state, SECOND)
    assert (state / "files.v1" / "keys" / "old").read_text() == "key"


@pytest.mark.parametrize("said", [{"layout": 3, "sublet": "3.0"}, {"layout": 2, "sublet": "3.0", "moving_to": 3}])
def test_a_later_layout_is_refused_also_where_a_change_to_it_was_killed(state: Path, said: dict[str, object]) -> None:
    (state / VERSION_FILE).write_text(json.dumps(said))
    with pytest.raises(SubletError, match=r"version 3, written by Sublet 3\.0.* up to version 2") as refused:
        bring(state, SECOND)
    assert refused.value.code is LocalCode.STATE_VERSION
    assert (state / "keys" / "old").exists()


def test_one_of_before_the_oldest_is_refused(state: Path) -> None:
    with pytest.raises(SubletError, match="takes up version 2 and later"):
        bring(state, Layout(3, (LayoutStep(3, "", (), drop),), 1, "used"))


@pytest.mark.parametrize("torn", ["", "[]", '{"layout": "x"}', '{"layout": 1e999, "sublet": ""}', "[" * 3000])
def test_a_torn_version_file_has_all_steps_run_again(state: Path, torn: str) -> None:
    (state / VERSION_FILE).write_text(torn)
    bring(state, SECOND)
    assert not (state / "keys" / "old").exists()
    assert LayoutFiles(state, SECOND, "2.0").read() == Written(2, "2.0")


def test_another_program_of_the_same_layout_writes_itself_down(state: Path) -> None:
    bring(state, FIRST, "1.0")
    bring(state, FIRST, "1.1")
    assert LayoutFiles(state, FIRST, "").read() == Written(1, "1.1")


def test_a_full_disk_does_not_keep_a_program_of_the_same_layout_from_starting(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(state, FIRST, "1.0")

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(layout_module, "write_durably", full)
    bring(state, FIRST, "1.1")
    assert LayoutFiles(state, FIRST, "").read() == Written(1, "1.0")


def test_copies_are_of_the_names_themselves_and_of_nothing_that_they_lead_to(state: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (state / "keys" / "link").symlink_to(outside)
    (state / "keys" / "file").symlink_to(outside / "secret")
    (state / "linked").symlink_to(outside)
    (state / "filed").symlink_to(outside / "secret")
    step = LayoutStep(2, "", ("keys", "linked", "filed"), lambda _: None)
    bring(state, Layout(2, (step,), 1, "used"))
    copy = state / "files.v1"
    assert all((copy / name).is_symlink() for name in ("keys/link", "keys/file", "linked", "filed"))
    assert (copy / "keys" / "old").read_text() == "key"


def test_what_a_killed_copy_left_is_made_anew(state: Path) -> None:
    (state / "files.copy" / "keys").mkdir(parents=True)
    (state / "files.copy" / "keys" / "torn").touch()
    bring(state, SECOND)
    assert sorted(one.name for one in (state / "files.v1" / "keys").iterdir()) == ["old"]


def test_only_the_newest_copies_are_kept(state: Path) -> None:
    layout = FIRST
    for _ in range(KEPT_COPIES + 2):
        step = LayoutStep(layout.version + 1, "", ("used",), lambda _: None)
        layout = replace(layout, version=layout.version + 1, steps=(*layout.steps, step))
        files = bring(state, layout)
    assert [one.name for one in files.copies()] == [f"files.v{n}" for n in range(layout.version - 2, layout.version)]


def test_a_step_that_fails_is_told_and_tried_again(state: Path) -> None:
    def fails(_: Path) -> None:
        raise OSError(28, "No space left on device")

    layout = replace(SECOND, steps=(replace(SECOND.steps[0], change=fails),))
    with pytest.raises(SubletError, match="No space left") as failed:
        bring(state, layout)
    assert failed.value.code is LocalCode.UNAVAILABLE
    bring(state, SECOND)
    assert not (state / "keys" / "old").exists()


def test_steps_with_a_gap_are_no_layout() -> None:
    with pytest.raises(ValueError, match="one by one"):
        Layout(3, (LayoutStep(2, "", (), drop),), 1, "used")


@pytest.mark.parametrize("what", ["the copies", "their directory"])
def test_nothing_is_changed_before_the_copies_are_on_the_disk(
    state: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    flush = os.fsync

    def failing(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode) == (what == "their directory"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(fd)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(SubletError, match="Input/output error") as refused:
        bring(state, SECOND)
    assert refused.value.code is LocalCode.UNAVAILABLE
    assert (state / "keys" / "old").exists()
    assert not (state / VERSION_FILE).exists()
    assert not list(state.glob("files.*")), "a draft would stay for ever"
