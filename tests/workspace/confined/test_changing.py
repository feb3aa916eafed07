"""Copies that are made before they are needed, and what is known of directories that change meanwhile."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sublet.workspace.confined.copy_up import QUICK_BYTES
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.confined.shared import CLOCK_NS
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.quota import Quota
from support.views import default_rules


def lend(root: Path) -> WritableFs:
    """Return a view that has what takes long found out in another thread."""
    return WritableFs(ConfinedFs.open_root(root), default_rules(), Quota(), lambda _: None, patient=False)


def write(fs: WritableFs, name: bytes, text: bytes, *, learn_only: bool = False) -> None:
    """Write at the begin of a file; or only find out what is needed for it, up to the copy that it is given."""
    for _ in range(9):
        copies = len(fs._copies)
        file = None
        try:
            file = fs.open_write((*name.split(b"/"),), os.O_WRONLY, 0o644)
            file.write(text, 0)
        except NotKnownYet as unknown:
            unknown.learn()
            if learn_only and len(fs._copies) > copies:
                return
            continue
        finally:
            if file is not None:
                file.close()
        return
    raise AssertionError("what is to be found out changes all the time")


def test_a_copy_goes_into_the_directory_that_it_was_made_for(tmp_path: Path) -> None:
    """The same file under two names, and one outside: what waits for one name is not put in place of the other."""
    root = tmp_path / "lent"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_bytes(b"o" * (QUICK_BYTES + 1))
    for name in ("a", "b"):
        (root / name / "same").hardlink_to(outside)
    fs = lend(root)
    try:
        write(fs, b"a/same", b"theirs", learn_only=True)
        write(fs, b"b/same", b"theirs")
        assert (root / "b" / "same").read_bytes().startswith(b"theirs")
        assert (root / "a" / "same").samefile(outside)
        assert outside.read_bytes() == b"o" * (QUICK_BYTES + 1)
        assert sorted(os.listdir(root / "a")) == ["same"]
        assert sorted(os.listdir(root / "b")) == ["same"]
    finally:
        fs.close()


def test_a_copy_of_a_file_whose_mode_changed_is_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "lent"
    root.mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"o" * (QUICK_BYTES + 1))
    outside.chmod(0o600)
    (root / "f").hardlink_to(outside)
    fs = lend(root)
    try:
        write(fs, b"f", b"theirs", learn_only=True)
        outside.chmod(0o755)
        write(fs, b"f", b"theirs")
        assert (root / "f").stat().st_mode & 0o777 == 0o755
    finally:
        fs.close()


def test_a_directory_that_may_change_within_the_same_tick_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    fs = lend(tmp_path)
    now = (tmp_path / "d").stat().st_ctime_ns
    try:
        for ago, kept in ((0, 0), (CLOCK_NS, 0), (CLOCK_NS + 1, 1)):
            monkeypatch.setattr(time, "time_ns", lambda ago=ago: now + ago)
            with fs._parent((b"d", b"x")) as directory:
                up = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
            try:
                fs._held.below(up, (b"d",), patient=True)
            finally:
                os.close(up)
            assert len(fs._held._listed) == kept
    finally:
        fs.close()
