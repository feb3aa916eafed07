"""Others' changes are found by looking; the executor's own are left out, and hidden names are never told."""

from __future__ import annotations

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
