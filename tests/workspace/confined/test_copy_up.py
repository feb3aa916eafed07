"""A file of its own for a name: put in one step, only in place of the file that was looked at, and leaving nothing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sublet.workspace.confined import copy_up
from sublet.workspace.confined.copy_up import PREFIX, QUICK_BYTES, Copy, copy_link

STALE = os.strerror(errno.ESTALE)
MODE, TIMES = 0o4750, (1_000_000_001, 2_000_000_002)


@dataclass
class Place:
    """A directory with a file that has another name elsewhere."""

    root: Path
    fd: int

    def status(self, name: str = "file") -> os.stat_result:
        return (self.root / name).lstat()

    def copy(self, keep: int = 7) -> Copy:
        return Copy(os.dup(self.fd), b"file", self.status(), keep)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_bytes(b"content")
    (tmp_path / "outside").chmod(MODE)
    os.utime(tmp_path / "outside", ns=TIMES)
    (root / "file").hardlink_to(tmp_path / "outside")
    fd, fds = os.open(root, os.O_RDONLY), len(os.listdir("/proc/self/fd"))
    yield Place(root, fd)
    assert len(os.listdir("/proc/self/fd")) == fds
    assert [name for name in os.listdir(root) if name.startswith(PREFIX.decode())] == []
    os.close(fd)


def refuse(number: int) -> Callable[..., object]:
    def call(*_: object, **__: object) -> object:
        raise OSError(number, "not here")

    return call


def unnamed_refused(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the file system make no file without a name."""
    plain = os.open

    def opened(path: object, flags: int, *rest: object, **named: object) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, "not here")
        return plain(path, flags, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opened)


@pytest.mark.parametrize(
    ("unnamed", "exchange", "keep"),
    [
        *((None, None, keep) for keep in (0, 3, 7, 99)),
        *((number, None, 7) for number in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)),
        *((None, number, 7) for number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)),
        (errno.EOPNOTSUPP, errno.ENOSYS, 3),
    ],
)
def test_the_copy_is_like_the_file_and_the_other_name_keeps_it(
    place: Place, unnamed: int | None, exchange: int | None, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if unnamed is not None:
        unnamed_refused(unnamed, monkeypatch)
    if exchange is not None:
        monkeypatch.setattr(copy_up, "exchange", refuse(exchange))
    before = place.status()
    copy = place.copy(keep)
    assert place.status().st_ino == before.st_ino
    copy.put(b"file", before)
    made, kept = place.status(), place.status("../outside")
    assert (kept.st_ino, kept.st_nlink, kept.st_mode) == (before.st_ino, 1, before.st_mode)
    assert (place.root / "../outside").read_bytes() == b"content"
    assert (place.root / "file").read_bytes() == b"content"[:keep]
    assert made.st_ino != before.st_ino
    assert stat.S_IMODE(made.st_mode) == 0o750  # without what would run as somebody else
    assert (made.st_atime_ns, made.st_mtime_ns, made.st_uid, made.st_gid, made.st_nlink) == (
        *(*TIMES, before.st_uid, before.st_gid),
        1,
    )
    copy.discard()


@pytest.mark.parametrize("unnamed", [None, errno.EOPNOTSUPP])
def test_a_copy_that_is_not_put_leaves_nothing(
    place: Place, unnamed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if unnamed is not None:
        unnamed_refused(unnamed, monkeypatch)
    before = place.status()
    copy = place.copy()
    for _ in range(2):
        copy.discard()
    assert (place.status().st_ino, os.listdir(place.root)) == (before.st_ino, ["file"])


@pytest.mark.parametrize("exchange", [None, errno.ENOSYS])
def test_whatever_has_taken_the_name_meanwhile_stays(
    place: Place, exchange: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if exchange is not None:
        monkeypatch.setattr(copy_up, "exchange", refuse(exchange))
    before, copy = place.status(), place.copy()
    (place.root / "other").write_text("other")
    (place.root / "other").rename(place.root / "file")
    with pytest.raises(OSError, match=STALE):
        copy.put(b"file", before)
    assert (place.root / "file").read_text() == "other"
    with pytest.raises(OSError, match=STALE):
        Copy(os.dup(place.fd), b"file", before, 7)
    assert (place.root / "file").read_text() == "other"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_what_fails_otherwise_fails_and_leaves_nothing(
    place: Place, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = place.status()
    with monkeypatch.context() as patch:
        unnamed_refused(number, patch)
        with pytest.raises(OSError, match="not here"):
            place.copy()
    copy = place.copy()
    monkeypatch.setattr(copy_up, "exchange", refuse(number))
    with pytest.raises(OSError, match="not here"):
        copy.put(b"file", before)
    assert place.status().st_ino == before.st_ino


def test_attributes_go_along_as_far_as_they_can(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"user.a": b"1", "user.refused": b"2", "user.b": b"3"}
    given: list[tuple[str, bytes]] = []

    def give(fd: int, name: str, value: bytes) -> None:
        if name == "user.refused":
            raise OSError(errno.ENOTSUP, "")
        given.append((name, value))

    monkeypatch.setattr(os, "listxattr", lambda fd: list(values))
    monkeypatch.setattr(os, "getxattr", lambda fd, name: values[name])
    monkeypatch.setattr(os, "setxattr", give)
    monkeypatch.setattr(os, "fchown", refuse(errno.EPERM))
    place.copy().discard()
    assert given == [("user.a", b"1"), ("user.b", b"3")]
    monkeypatch.setattr(os, "listxattr", refuse(errno.ENOTSUP))
    place.copy().put(b"file", place.status())
    assert place.status().st_mtime_ns == TIMES[1]


@pytest.mark.parametrize("exchange", [None, errno.EINVAL])
def test_a_link_with_several_names_becomes_one_of_its_own(
    place: Place, exchange: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if exchange is not None:
        monkeypatch.setattr(copy_up, "exchange", refuse(exchange))
    (place.root / "link").symlink_to("to")
    os.link(place.root / "link", place.root / "../second", follow_symlinks=False)
    before = place.status("link")
    copy_link(place.fd, b"link", before)
    assert os.readlink(place.root / "link") == os.readlink(place.root / "../second") == "to"
    assert place.status("link").st_ino != before.st_ino
    with pytest.raises(OSError, match=STALE):
        copy_link(place.fd, b"link", before)
    assert os.readlink(place.root / "link") == "to"


def test_bounds_and_names_that_others_go_by() -> None:
    assert QUICK_BYTES == 1 << 20
    assert PREFIX == b".sublet-own-"  # which rules hide
