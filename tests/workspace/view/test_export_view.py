"""The tree that a client sees: two directories, one of them the lender's, and never its real path."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

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
