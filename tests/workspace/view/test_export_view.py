"""The tree that a client sees: two directories, one of them the lender's, and never its real path."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.quota import Quota
from sublet.workspace.view.export_view import MAX_META_BYTES, MAX_META_FILES, ExportView, WritableView
from support.sftp_client import PathRules


@pytest.fixture
def view(tmp_path: Path) -> Iterator[WritableView]:
    """A writable view of a small workspace."""
    (tmp_path / "a").write_text("hello")
    quota = Quota(None, None)
    made = WritableView(
        {"workspace": WritableFs(ConfinedFs.open_root(tmp_path), PathRules(), quota, lambda _: None)},
        {"task.json": b"{}"},
    )
    yield made
    made.close()


def names(view: ExportView, path: bytes) -> list[bytes]:
    """Return what ``path`` lists."""
    directory = view.open_directory(path)
    try:
        return [entry[0] for entry in directory.entries_or_pauses() if entry is not None]
    finally:
        directory.close()


def test_the_root_lists_workspace_and_meta(view: WritableView) -> None:
    assert names(view, b"/") == [b"workspace", b"meta"]
    assert names(view, b"/workspace") == [b"a"]
    assert names(view, b"/meta/../meta/.") == [b"task.json"]
    assert stat.S_IMODE(view.stat(b"/").st_mode) == 0o555
    assert stat.S_IMODE(view.lstat(b"/meta/task.json").st_mode) == 0o444


def test_real_paths_are_not_names_here(view: WritableView, tmp_path: Path) -> None:
    for path in (os.fsencode(tmp_path), b"/etc/passwd", b"/../etc/passwd", b"/workspace/../../etc/passwd"):
        with pytest.raises(FileNotFoundError) as caught:
            view.lstat(path)
        assert os.fsencode(tmp_path) not in str(caught.value).encode()
    assert view.realpath(b"/workspace/../../..") == b"/"
    assert view.realpath(b"workspace//a/") == b"/workspace/a"


def test_meta_reads_as_it_was_opened_and_changes_for_the_next(view: WritableView) -> None:
    before = view.open_read(b"/meta/task.json")
    view.set_meta("task.json", b'{"n": 1}')
    view.set_meta("log", b"line\n")
    after = view.open_read(b"/meta/task.json")
    assert before.read(100, 0) == b"{}"
    assert (after.read(100, 0), after.read(3, 5), after.read(9, 99)) == (b'{"n": 1}', b" 1}", b"")
    assert after.stat().st_size == 8
    assert names(view, b"/meta") == [b"log", b"task.json"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "ü", "x" * 200, ".hidden"])
def test_meta_names_are_plain(view: WritableView, name: str) -> None:
    with pytest.raises(SubletError) as caught:
        view.set_meta(name, b"")
    assert caught.value.code is LocalCode.INVALID_ARGUMENT


def test_meta_is_bounded(view: WritableView) -> None:
    with pytest.raises(SubletError):
        view.set_meta("big", b"x" * (MAX_META_BYTES + 1))
    for number in range(MAX_META_FILES - 1):
        view.set_meta(f"f{number}", b"")
    view.set_meta("f0", b"again")
    with pytest.raises(SubletError):
        view.set_meta("one-too-many", b"")


def test_nothing_changes_outside_the_workspace(view: WritableView) -> None:
    write = os.O_WRONLY | os.O_CREAT
    for path in (b"/", b"/meta", b"/meta/task.json", b"/new", b"/workspacex", b"/workspace/../new", b"/meta/new"):
        for action in (
            partial(view.open_write, path, write, 0o644),
            partial(view.set_attributes, path, mode=0o777),
            partial(view.remove, path),
            partial(view.mkdir, path, 0o755),
            partial(view.rmdir, path),
            partial(view.symlink, b"a", path),
            partial(view.link, b"/workspace/a", path),
            partial(view.link, path, b"/workspace/b"),
            partial(view.rename, b"/workspace/a", path, replace=True),
            partial(view.rename, path, b"/workspace/b", replace=True),
        ):
            with pytest.raises(PermissionError):
                action()
    for action in (
        partial(view.remove, b"/workspace"),
        partial(view.rmdir, b"/workspace"),
        partial(view.mkdir, b"/workspace", 0o755),
        partial(view.rename, b"/workspace", b"/workspace/b", replace=True),
    ):
        with pytest.raises(PermissionError):
            action()
    assert names(view, b"/") == [b"workspace", b"meta"]
    assert names(view, b"/workspace") == [b"a"]


def test_virtual_names_have_the_right_kind(view: WritableView) -> None:
    for path, code in ((b"/", errno.EISDIR), (b"/meta", errno.EISDIR), (b"/nothing", errno.ENOENT)):
        with pytest.raises(OSError, match=os.strerror(code)):
            view.open_read(path)
    with pytest.raises(NotADirectoryError):
        view.open_directory(b"/meta/task.json")
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        view.readlink(b"/meta/task.json")
    with pytest.raises(FileNotFoundError):
        view.lstat(b"/meta/task.json/x")


def test_a_read_only_view_has_no_way_to_change_anything(tmp_path: Path) -> None:
    fs = ConfinedFs(ConfinedFs.open_root(tmp_path), PathRules(), Quota(None, None))
    view = ExportView({"workspace": fs}, {})
    try:
        for name in ("open_write", "set_attributes", "remove", "mkdir", "rmdir", "symlink", "link", "rename"):
            assert not hasattr(view, name)
            assert not hasattr(fs, name)
        assert view.statvfs()[9] == 1
    finally:
        view.close()


def test_a_copy_stands_in_for_a_hidden_file(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "config").write_text("secret")
    (tmp_path / "dir" / "plain").touch()
    quota = Quota(None, None)
    fs = WritableFs(ConfinedFs.open_root(tmp_path), PathRules(hidden=(b"dir/config",)), quota, lambda _: None)
    view = WritableView({"workspace": fs}, {}, {"workspace": {(b"dir", b"config"): b"harmless"}})
    path = b"/workspace/dir/config"
    assert sorted(names(view, b"/workspace/dir")) == [b"config", b"plain"]
    assert names(view, b"/workspace") == [b"dir"]
    assert view.open_read(path).read(100, 0) == b"harmless"
    assert view.lstat(path).st_size == view.stat(path).st_size == 8
    for change in (
        lambda: view.open_write(path, os.O_WRONLY, 0),
        lambda: view.remove(path),
        lambda: view.rename(b"/workspace/dir/plain", path, replace=True),
        lambda: view.set_attributes(path, mode=0o777),
    ):
        with pytest.raises((PermissionError, FileNotFoundError)):
            change()
    assert (tmp_path / "dir" / "config").read_text() == "secret"
    view.close()


# Which tree is asked what


class Asked(WritableFs):
    """A tree that notes what it is asked, and answers with it."""

    def __init__(self, name: str, *, read_only: bool = False) -> None:
        self.name = name
        self.read_only = read_only

    def close(self) -> None:
        CLOSED.append(self.name)


CLOSED: list[str] = []
READS = ("lstat", "stat", "readlink", "open_read", "open_directory")


def _noting(method: str) -> Callable[..., object]:
    return lambda self, *arguments, **named: (self.name, method, *arguments, *sorted(named.items()))


CHANGES = ("open_write", "set_attributes", "remove", "mkdir", "rmdir", "symlink", "look", "link", "rename")
for _method in (*READS, "statvfs", *CHANGES):
    setattr(Asked, _method, _noting(_method))


@pytest.fixture
def two() -> Any:
    return WritableView({"first": Asked("first", read_only=True), "second": Asked("second")}, {"a": b"1"})


@pytest.mark.parametrize("method", READS)
def test_what_lies_in_a_tree_is_asked_of_that(two: Any, method: str) -> None:
    ask = getattr(two, method)
    assert ask(b"/first/x/y") == ("first", method, [b"x", b"y"])
    assert ask(b"/first/../second/./x/") == ("second", method, [b"x"])
    assert ask(b"/second") == ("second", method, [])


@pytest.mark.parametrize(
    ("method", "arguments", "named", "passed"),
    [
        ("open_write", (5, 0o600), {}, (5, 0o600)),
        ("mkdir", (0o700,), {}, (0o700,)),
        ("remove", (), {}, ()),
        ("rmdir", (), {}, ()),
        ("set_attributes", (), {}, (("follow", True), ("mode", None), ("size", None), ("times", None))),
        (
            "set_attributes",
            (),
            {"size": 1, "mode": 2, "times": (3, 4), "follow": False},
            (("follow", False), ("mode", 2), ("size", 1), ("times", (3, 4))),
        ),
    ],
)
def test_a_change_is_asked_of_the_tree_that_it_is_in(
    two: Any,
    method: str,
    arguments: tuple[object, ...],
    named: dict[str, object],
    passed: tuple[object, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[object] = []
    monkeypatch.setattr(
        Asked, method, lambda self, *given, **rest: answers.append((self.name, *given, *sorted(rest.items())))
    )
    getattr(two, method)(b"/second/x/y", *arguments, **named)
    assert answers == [("second", [b"x", b"y"], *passed)]


def test_two_names_lie_in_one_tree(two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[object] = []
    for method in ("symlink", "link", "rename"):
        monkeypatch.setattr(
            Asked,
            method,
            lambda self, *given, _m=method, **rest: answers.append((_m, self.name, *given, *rest.items())),
        )
    assert two.look(b"/second/a", b"/second/b/c") == ("second", "look", [b"a"], [b"b", b"c"])
    two.symlink(b"../to", b"/second/a")
    two.link(b"/second/a", b"/second/b")
    two.link(b"/second/a", b"/second/b", "looked")
    two.rename(b"/second/a", b"/second/b", replace=True)
    two.rename(b"/second/a", b"/second/b", "looked", replace=False)
    assert answers == [
        ("symlink", "second", b"../to", [b"a"]),
        ("link", "second", [b"a"], [b"b"], None),
        ("link", "second", [b"a"], [b"b"], "looked"),
        ("rename", "second", [b"a"], [b"b"], None, ("replace", True)),
        ("rename", "second", [b"a"], [b"b"], "looked", ("replace", False)),
    ]
    for action in (two.look, two.link, partial(two.rename, replace=True)):
        with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
            action(b"/first/a", b"/second/a")
        for old, new in ((b"/meta/a", b"/second/a"), (b"/second/a", b"/meta/a")):
            with pytest.raises(PermissionError):
                action(old, new)


def test_room_is_told_of_the_tree_or_of_the_first_that_can_be_changed(two: Any) -> None:
    assert two.statvfs(b"/first/x") == ("first", "statvfs")
    for path in (b"/second", b"/", b"/meta", b"/meta/a", b"/none"):
        assert two.statvfs(path) == ("second", "statvfs")
    assert two.statvfs() == ("second", "statvfs")
    only: Any = ExportView({"b": Asked("b", read_only=True), "a": Asked("a", read_only=True)}, {})
    assert only.statvfs() == ("b", "statvfs")
    CLOSED.clear()
    two.close()
    assert CLOSED == ["first", "second"]


def test_what_is_in_memory_has_a_status_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    view = ExportView({"w": Asked("w")}, {"a": b"12"}, {"w": {(b"d", b"copy"): b"123", (b"top",): b""}})
    now[0] = 2000.1
    view.set_meta("b", b"1")
    user, group = os.getuid(), os.getgid()
    directory = (stat.S_IFDIR | 0o555, 0, 0, 2, user, group, 0, 1000, 1000, 1000)

    def file(size: int, at: int) -> tuple[int, ...]:
        return (stat.S_IFREG | 0o444, 0, 0, 1, user, group, size, at, at, at)

    assert view.made_at == 1000
    assert view.meta_files == {b"a": b"12", b"b": b"1"}
    expected = {
        b"/": directory,
        b"/meta": directory,
        b"/meta/a": file(2, 1000),
        b"/meta/b": file(1, 2000),
        b"/w/d/copy": file(3, 1000),
        b"/w/top": file(0, 1000),
    }
    for path, status in expected.items():
        assert tuple(view.lstat(path)) == tuple(view.stat(path)) == status
    for path in (b"/meta", b"/"):
        assert tuple(view.open_directory(path).stat()) == directory
    assert [entry and (entry[0], tuple(entry[1])) for entry in view.open_directory(b"/meta").entries_or_pauses()] == [
        (b"a", expected[b"/meta/a"]),
        (b"b", expected[b"/meta/b"]),
    ]
    copy = view.open_read(b"/w/d/copy")
    assert [copy.read(9, 0), copy.read(1, 1), copy.read(1, 3)] == [b"123", b"2", b""]
    assert tuple(copy.stat()) == expected[b"/w/d/copy"]
    for path in (b"/meta/none", b"/none", b"/meta/a/b", b"/other/a"):
        for ask in (view.lstat, view.stat, view.readlink, view.open_read, view.open_directory):
            with pytest.raises(FileNotFoundError):
                ask(path)
    for path in (b"/", b"/meta"):
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            view.readlink(path)


@pytest.mark.parametrize("name", ["a", "0", "a" * 63, "a.b-c_d", "0.-_"])
def test_how_a_tree_may_be_called(name: str) -> None:
    view: Any = ExportView({name: Asked(name)}, {})
    assert view.lstat(b"/" + name.encode()) == (name, "lstat", [])


@pytest.mark.parametrize("name", ["", "meta", "A", "a" * 64, ".a", "-a", "_a", "a/b", "ä", "a\n"])
def test_how_no_tree_is_called(name: str) -> None:
    with pytest.raises(SubletError, match="can't be called") as refused:
        ExportView({name: Asked(name)}, {})
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


def test_meta_files_have_their_bounds(two: Any) -> None:
    assert (MAX_META_FILES, MAX_META_BYTES) == (64, 1 << 20)
    for name in ("A", "_x", "-x", "0", "x" * 128):
        two.set_meta(name, b"x" * MAX_META_BYTES)
        assert len(two.meta_files[name.encode()]) == MAX_META_BYTES
    for name in ("x" * 129, "\ud800"):
        with pytest.raises(SubletError, match="bad name"):
            two.set_meta(name, b"")
    for number in range(MAX_META_FILES - 6):
        two.set_meta(f"f{number}", b"")
    assert len(two.meta_files) == MAX_META_FILES
    with pytest.raises(SubletError, match="one too many"):
        two.set_meta("more", b"")


def test_a_directory_with_copies_is_the_directory_with_them_in_front(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    fs = WritableFs(ConfinedFs.open_root(tmp_path), PathRules(hidden=(b"copy",)), Quota(None, None), lambda _: None)
    view = WritableView({"w": fs}, {}, {"w": {(b"copy",): b"123"}})
    fds = len(os.listdir("/proc/self/fd"))
    directory = view.open_directory(b"/w")
    assert os.path.samestat(directory.stat(), tmp_path.stat())
    assert [entry and (entry[0], entry[1].st_size) for entry in directory.entries_or_pauses()] == [
        (b"copy", 3),
        (b"plain", 0),
    ]
    directory.close()
    assert len(os.listdir("/proc/self/fd")) == fds
    view.close()
