"""Others' changes are found by looking; the executor's own are left out, and hidden names are never told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sublet.workspace.export import LentDirectory
from sublet.workspace.view import change_watch
from sublet.workspace.view.change_watch import Changed, ChangeWatch
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from sublet.workspace.view.walk import WalkOverrunError


def lent(path: Path, name: str = "workspace") -> LentDirectory:
    path.mkdir(exist_ok=True)
    return LentDirectory(name, path, "rw", Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, []))


def test_what_others_do_is_told_once_and_nothing_that_is_hidden(tmp_path: Path) -> None:
    root = tmp_path / "one"
    touched: dict[str, set[bytes]] = {}
    watch = ChangeWatch([lent(root)], lambda: touched)
    (root / "old").write_text("1")
    (root / "gone").write_text("1")
    (root / "sub").mkdir()
    assert watch.look() == []
    (root / "old").write_text("22")
    (root / "gone").unlink()
    (root / "sub" / "new\n\x1b[1m").write_text("x")
    (root / ".env").write_text("SECRET=1")
    found = watch.look()
    assert [(one.change, one.path.split("\\")[0]) for one in found] == [
        ("deleted", "gone"),
        ("changed", "old"),
        ("added", "sub/new"),
    ]
    assert not any(ord(character) < 32 for one in found for character in one.path)
    assert watch.look() == []
    touched["workspace"] = {b"mine", b"made"}
    (root / "mine").write_text("by the executor")
    (root / "made").mkdir()
    (root / "made" / "below").write_text("by the executor too")
    (root / "theirs").write_text("x")
    assert watch.look() == [Changed("theirs", "added")]


def test_several_directories_are_told_apart(tmp_path: Path) -> None:
    watch = ChangeWatch([lent(tmp_path / "a", "src"), lent(tmp_path / "b", "docs")], dict)
    watch.look()
    (tmp_path / "b" / "x").write_text("")
    assert watch.look() == [Changed("docs/x", "added")]


def test_looking_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_watch, "MAX_ENTRIES", 3)
    watch = ChangeWatch([lent(tmp_path / "a")], dict)
    for number in range(5):
        (tmp_path / "a" / str(number)).touch()
    with pytest.raises(WalkOverrunError):
        watch.look()


def test_every_kind_of_change_is_told_and_a_directory_by_what_is_in_it(tmp_path: Path) -> None:
    root = tmp_path / "one"
    watch = ChangeWatch([lent(root)], dict)
    for name in ("same", "size", "mode", "time", "swapped"):
        (root / name).write_text("1")
        os.utime(root / name, ns=(10**18, 10**18))
    (root / "dir").mkdir()
    (root / "kind").mkdir()
    assert watch.look() == []
    (root / "size").write_text("22")
    os.utime(root / "size", ns=(10**18, 10**18))
    (root / "mode").chmod(0o600 if (root / "mode").stat().st_mode & 0o077 else 0o644)
    os.utime(root / "time", ns=(10**18, 10**18 + 1))
    (root / "other").write_text("1")
    os.utime(root / "other", ns=(10**18, 10**18))
    (root / "other").rename(root / "swapped")
    (root / "dir/new").write_text("x")
    (root / "kind").rmdir()
    (root / "kind").write_text("x")
    assert watch.look() == [
        Changed("dir/new", "added"),
        *(Changed(name, "changed") for name in ("kind", "mode", "size", "swapped", "time")),
    ]
    (root / "dir/new").unlink()
    (root / "same").unlink()
    assert watch.look() == [Changed("dir/new", "deleted"), Changed("same", "deleted")]


def test_what_the_executor_has_touched_is_left_out_with_all_below(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    touched = {"src": {b"x", b"d/e"}}
    watch = ChangeWatch([lent(first, "src"), lent(second, "docs")], lambda: touched)
    watch.look()
    for root in (first, second):
        for path in ("x", "xy", "d/e/f", "d/ef", "z/x"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("1")
    (first / "x").unlink()
    (first / "x").mkdir()
    (first / "x/below").write_text("1")
    told = {one.path for one in watch.look()}
    assert told == {
        *("src/xy", "src/d", "src/d/ef", "src/z", "src/z/x"),
        *("docs/x", "docs/xy", "docs/d", "docs/d/e", "docs/d/e/f", "docs/d/ef", "docs/z", "docs/z/x"),
    }


@pytest.mark.parametrize(("took", "pause"), [(0.0, 1.0), (0.05, 1.0), (0.1, 2.0), (3.0, 60.0)])
def test_looking_takes_a_small_part_of_the_time(
    tmp_path: Path, took: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = ChangeWatch([lent(tmp_path / "a")], dict)
    assert watch.pause == 1.0
    scan = watch._scan

    def slow() -> object:
        now[0] += took
        return scan()

    monkeypatch.setattr(watch, "_scan", slow)
    watch.look()
    assert watch.pause == pytest.approx(pause)
    assert (change_watch.MAX_ENTRIES, change_watch.MAX_SECONDS, change_watch.SHARE) == (100_000, 5.0, 20)


def test_looking_leaves_nothing_open(tmp_path: Path) -> None:
    watch = ChangeWatch([lent(tmp_path / "a"), lent(tmp_path / "b", "other")], dict)
    fds = len(os.listdir("/proc/self/fd"))
    watch.look()
    (tmp_path / "b").rmdir()
    with pytest.raises(FileNotFoundError):
        watch.look()
    assert len(os.listdir("/proc/self/fd")) == fds
