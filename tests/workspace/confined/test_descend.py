"""Going down by descriptors: every directory that is wanted, once, and none that is a link, too deep or closed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sublet.workspace.confined import descend as module
from sublet.workspace.confined.descend import Level, descend

Shut = list[tuple[bytes, ...]]


def entered(level: Level) -> None:
    """Want everything that is below, in order, and mark what is below ``marked``."""
    level.enter += [(name.encode(), name == "marked") for name in sorted(os.listdir(level.fd), reverse=True)]


def test_each_directory_is_met_once_in_order_and_closed_when_it_is_done(tmp_path: Path) -> None:
    for name in ("a/x/y", "a/z", "marked/m/n", "plain"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("a")
    fds, shut = len(os.listdir("/proc/self/fd")), Shut()
    met, most = list[tuple[bytes, bool]](), 0
    for level in descend(os.open(tmp_path, os.O_RDONLY), (b"top",), shut.append):
        path = b"/".join(level.parts)
        met.append((path, level.marked))
        assert os.path.samestat(os.fstat(level.fd), os.stat(os.fsencode(tmp_path) + path.removeprefix(b"top")))
        most = max(most, len(os.listdir("/proc/self/fd")) - fds)
        entered(level)
        level.enter.append((b"gone", False))
    assert met == [
        *((b"top", False), (b"top/a", False), (b"top/a/x", False), (b"top/a/x/y", False), (b"top/a/z", False)),
        *((b"top/marked", True), (b"top/marked/m", True), (b"top/marked/m/n", True), (b"top/plain", False)),
    ]
    assert shut == []
    assert most == 4
    assert len(os.listdir("/proc/self/fd")) == fds


def test_what_is_too_deep_or_can_not_be_opened_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "d").mkdir()
    monkeypatch.setattr(module, "MAX_DEPTH", 3)
    plain = os.open

    def refuse(name: bytes, flags: int, *, dir_fd: int) -> int:
        if name == b"d":
            raise PermissionError
        return plain(name, flags, dir_fd=dir_fd)

    fds, shut, met = len(os.listdir("/proc/self/fd")), Shut(), []
    top = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(os, "open", refuse)
    for level in descend(top, (), shut.append):
        met.append(b"/".join(level.parts))
        entered(level)
    assert met == [b"", b"a", b"a/b"]
    assert shut == [(b"a", b"b", b"c"), (b"d",)]
    assert len(os.listdir("/proc/self/fd")) == fds


def test_another_file_system_is_told_and_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("a/below", "b"):
        (tmp_path / path).mkdir(parents=True)
    plain, foreign = os.fstat, (tmp_path / "a").stat().st_ino

    def elsewhere(fd: int) -> os.stat_result:
        status = plain(fd)
        if status.st_ino != foreign:
            return status
        return os.stat_result((*status[:2], status.st_dev + 1, *status[3:10]))

    monkeypatch.setattr(os, "fstat", elsewhere)
    fds, shut, met = len(os.listdir("/proc/self/fd")), Shut(), []
    for level in descend(os.open(tmp_path, os.O_RDONLY), (), shut.append):
        met.append(b"/".join(level.parts))
        entered(level)
    assert (met, shut) == ([b"", b"b"], [(b"a",)])
    assert len(os.listdir("/proc/self/fd")) == fds


def test_who_stops_early_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    fds = len(os.listdir("/proc/self/fd"))
    levels = descend(os.open(tmp_path, os.O_RDONLY), (), lambda _: None)
    for _ in range(3):
        entered(next(levels))
    del levels
    assert len(os.listdir("/proc/self/fd")) == fds
