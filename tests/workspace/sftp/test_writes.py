"""Operations that change something: what each asks of the view, what it answers, and what is counted."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from sublet.workspace.confined.file import process_umask
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import LeaseUsage
from sublet.workspace.git.take import Looking
from sublet.workspace.sftp.handles import HandleBudget, Handles
from sublet.workspace.sftp.reply import Reply, SlowReply
from sublet.workspace.sftp.wire import MAX_OFFSET, Attributes, OpenFlag, Reader, Status, pack_error, pack_status
from sublet.workspace.sftp.writes import WRITE_EXTENSIONS, WRITE_OPS, WriteOps
from sublet.workspace.view.export_view import WritableView
from support.sftp_client import NO_ATTRIBUTES, attributes, string
from support.views import default_rules

REQUEST = 7
DONE = pack_status(REQUEST, Status.OK)
UMASK = process_umask()
OLD, NEW = b"/w/old", b"/w/new"
NOTHING = Attributes(None, None, None, None)


@dataclass
class Large:
    """What has to look at a large file first."""

    error: OSError | None = None
    done: list[str] = field(default_factory=list)

    def look(self) -> None:
        self.done.append("looked")
        if self.error is not None:
            raise self.error

    def drop(self) -> None:
        self.done.append("dropped")


@dataclass
class Asked:
    """A view that notes what it is asked, and by which names."""

    large: Large | None = None
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def __getattr__(self, name: str) -> object:
        def call(*arguments: object, **named: object) -> object:
            self.calls.append((name, *arguments, *sorted(named.items())))
            return self.large if name == "look" else name

        return call


def made(view: Asked | WritableView) -> WriteOps:
    return WriteOps(cast(WritableView, view), LeaseUsage(), Handles(HandleBudget(9)))


def done(ops: WriteOps, operation: int | bytes, body: bytes) -> Reply:
    table = ops.extensions() if isinstance(operation, bytes) else ops.operations()
    return table[operation](REQUEST, Reader(body, 0, len(body)))  # type: ignore[index]


ALL = attributes(size=5, owner=(1, 2), mode=0o640, times=(3, 4))


def set_attributes(path: bytes, size: int | None, mode: int | None, times: object, *, follow: bool) -> object:
    return ("set_attributes", path, ("follow", follow), ("mode", mode), ("size", size), ("times", times))


@pytest.mark.parametrize(
    ("operation", "body", "calls"),
    [
        (9, string(OLD) + ALL, [set_attributes(OLD, 5, 0o640, (3, 4), follow=True)]),
        (9, string(OLD) + NO_ATTRIBUTES, [set_attributes(OLD, None, None, None, follow=True)]),
        (9, string(OLD) + attributes(size=MAX_OFFSET), [set_attributes(OLD, MAX_OFFSET, None, None, follow=True)]),
        (b"lsetstat@openssh.com", string(OLD) + ALL, [set_attributes(OLD, 5, 0o640, (3, 4), follow=False)]),
        (13, string(OLD), [("remove", OLD)]),
        (14, string(OLD) + attributes(mode=0o710), [("mkdir", OLD, 0o710)]),
        (14, string(OLD) + NO_ATTRIBUTES, [("mkdir", OLD, 0o777 & ~UMASK)]),
        (15, string(OLD), [("rmdir", OLD)]),
        (18, string(OLD) + string(NEW), [("look", OLD, NEW), ("rename", OLD, NEW, None, ("replace", False))]),
        (
            b"posix-rename@openssh.com",
            string(OLD) + string(NEW),
            [("look", OLD, NEW), ("rename", OLD, NEW, None, ("replace", True))],
        ),
        (b"hardlink@openssh.com", string(OLD) + string(NEW), [("look", OLD, NEW), ("link", OLD, NEW, None)]),
        (20, string(b"../to") + string(NEW), [("symlink", b"../to", NEW)]),
    ],
)
def test_what_each_asks_of_the_view(operation: int | bytes, body: bytes, calls: list[object]) -> None:
    view = Asked()
    assert done(made(view), operation, body) == DONE
    assert view.calls == calls


def test_the_tables_are_what_a_read_only_session_has_not() -> None:
    ops = made(Asked())
    assert set(ops.operations()) == WRITE_OPS == {6, 9, 10, 13, 14, 15, 18, 20}
    assert set(ops.extensions()) == WRITE_EXTENSIONS
    assert {name.partition(b"@")[0] for name in WRITE_EXTENSIONS} == {
        *(b"posix-rename", b"hardlink", b"fsync", b"lsetstat")
    }
    assert {name.partition(b"@")[2] for name in WRITE_EXTENSIONS} == {b"openssh.com"}


@pytest.mark.parametrize(
    ("flags", "system"),
    [
        (OpenFlag.WRITE, os.O_WRONLY),
        (OpenFlag.WRITE | OpenFlag.READ, os.O_RDWR),
        (OpenFlag.WRITE | OpenFlag.APPEND, os.O_WRONLY | os.O_APPEND),
        (OpenFlag.WRITE | OpenFlag.CREAT, os.O_WRONLY | os.O_CREAT),
        (OpenFlag.WRITE | OpenFlag.TRUNC, os.O_WRONLY | os.O_TRUNC),
        (OpenFlag.WRITE | OpenFlag.EXCL, os.O_WRONLY | os.O_EXCL),
        (0x3F, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_EXCL),
    ],
)
def test_flags_become_those_of_the_system(flags: int, system: int) -> None:
    view = Asked()
    for attributes_sent in (NOTHING, NOTHING._replace(permissions=0o4640)):
        opened: object = made(view).open(OLD, flags, attributes_sent)
        assert opened == "open_write"
    assert view.calls == [("open_write", OLD, system, 0o666 & ~UMASK), ("open_write", OLD, system, 0o4640)]
    if flags != 0x3F:
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            made(view).open(OLD, flags & ~OpenFlag.WRITE | OpenFlag.READ, NOTHING)


@pytest.mark.parametrize(("operation", "call"), [(18, "rename"), (b"hardlink@openssh.com", "link")])
@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "unread")])
def test_a_large_file_is_looked_at_in_a_thread_first(operation: int | bytes, call: str, error: OSError | None) -> None:
    view = Asked(Large(error))
    assert view.large is not None
    reply = done(made(view), operation, string(OLD) + string(NEW))
    assert isinstance(reply, SlowReply)
    assert view.calls == [("look", OLD, NEW)]
    assert reply.run() == b""
    assert reply.finish is not None
    assert reply.finish() == DONE
    del reply
    assert view.large.done == ["looked"]  # an error of the look is raised once more by what follows, which tells why
    assert view.calls[1:] == [
        (call, OLD, NEW, cast(Looking, view.large), *([("replace", False)] if call == "rename" else []))
    ]


@pytest.mark.parametrize("operation", [18, b"hardlink@openssh.com"])
def test_what_no_thread_looks_at_is_dropped(operation: int | bytes) -> None:
    view = Asked(Large())
    assert view.large is not None
    reply = done(made(view), operation, string(OLD) + string(NEW))
    assert view.large.done == []
    del reply
    assert view.large.done == ["dropped"]


# Open files


@dataclass
class Served:
    """One open file on the disk."""

    path: Path
    ops: WriteOps
    usage: LeaseUsage
    handles: Handles
    name: bytes

    def ask(self, operation: int | bytes, body: bytes) -> Reply:
        return done(self.ops, operation, string(self.name) + body)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Served]:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    usage, handles = LeaseUsage(), Handles(HandleBudget(9))
    fs = WritableFs(WritableFs.open_root(tmp_path), default_rules(), usage.quota, lambda _: None)
    view = WritableView({"w": fs}, {})
    file = view.open_write(b"/w/file", os.O_RDWR, 0o600)
    yield Served(path, WriteOps(view, usage, handles), usage, handles, handles.add(file))
    handles.close_all()
    view.close()


def test_what_is_written_is_there_and_counted(opened: Served) -> None:
    for offset, data in ((3, b"TENT, "), (9, b"twice")):
        assert opened.ask(6, struct.pack(">Q", offset) + string(data)) == DONE
    assert opened.path.read_bytes() == b"conTENT, twice"
    assert opened.usage.bytes_written == 11
    assert opened.ask(6, struct.pack(">Q", MAX_OFFSET) + string(b"")) == DONE
    for offset, data in ((MAX_OFFSET, b"x"), (MAX_OFFSET - 4, b"wrong"), (MAX_OFFSET + 1, b"")):
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            opened.ask(6, struct.pack(">Q", offset) + string(data))
    assert opened.usage.bytes_written == 11


@pytest.mark.parametrize(
    ("attrs", "size", "mode", "times"),
    [
        (attributes(size=3), 3, 0o600, None),
        (attributes(size=0), 0, 0o600, None),
        (attributes(mode=0o640), 7, 0o640, None),
        (attributes(times=(7, 8)), 7, 0o600, (7, 8)),
        (attributes(size=2, owner=(1, 1), mode=0o644, times=(0, 0)), 2, 0o644, (0, 0)),
        (NO_ATTRIBUTES, 7, 0o600, None),
    ],
)
def test_each_attribute_of_an_open_file_is_set_alone(
    opened: Served, attrs: bytes, size: int, mode: int, times: tuple[int, int] | None
) -> None:
    opened.path.chmod(0o600)
    os.utime(opened.path, (100, 200))
    assert opened.ask(10, attrs) == DONE
    status = opened.path.stat()
    assert (status.st_size, status.st_mode & 0o7777) == (size, mode)
    if times is not None or size == 7:
        assert (status.st_atime, status.st_mtime) == (times or (100, 200))
    assert status.st_uid == os.getuid()


def test_a_size_that_no_file_has_changes_nothing(opened: Served) -> None:
    for operation, body in ((10, string(opened.name)), (9, string(b"/w/file"))):
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            done(opened.ops, operation, body + attributes(size=MAX_OFFSET + 1, mode=0o640))
    assert opened.path.read_bytes() == b"content"


def test_fsync_has_a_descriptor_of_its_own(opened: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    reply = opened.ask(b"fsync@openssh.com", b"")
    assert isinstance(reply, SlowReply)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    opened.handles.close(opened.name)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    assert (reply.run(), reply.finish) == (DONE, None)
    assert synced == [str(opened.path)]
    del reply
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_a_disk_that_fails_is_told_to_the_client_and_to_the_lender(
    opened: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, told = OSError(errno.ENOSPC, "full"), list[OSError]()
    monkeypatch.setattr(opened.usage.quota, "failed", told.append)
    before = len(os.listdir("/proc/self/fd"))
    reply = opened.ask(b"fsync@openssh.com", b"")
    assert isinstance(reply, SlowReply)

    def fail(fd: int) -> None:
        raise full

    monkeypatch.setattr(os, "fsync", fail)
    assert reply.run() == pack_error(REQUEST, full)
    assert told == [full]
    unasked = opened.ask(b"fsync@openssh.com", b"")
    del reply, unasked
    assert len(os.listdir("/proc/self/fd")) == before
