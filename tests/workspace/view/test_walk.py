"""The walk over what a lease exports, compared with the system's own, and its bounds."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.workspace.confined.nested_mounts import NestedMounts
from sublet.workspace.export import ViewRules
from sublet.workspace.view import walk as module
from sublet.workspace.view.rules import Rules
from sublet.workspace.view.walk import Budget, Directory, Unread, WalkOverrunError, open_root, walk
from support.sftp_client import PathRules

PLENTY = 10_000


def walked(root: Path, rules: ViewRules, entries: int = PLENTY) -> Iterator[Directory | Unread]:
    fd = open_root(root)
    try:
        yield from walk(fd, rules, Budget(entries, 100))
    finally:
        os.close(fd)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path in ("b/y/z", "a/x", "c", "hidden/below", "a/secret"):
        (tmp_path / path).mkdir(parents=True)
    for path in ("b/file", "a/x/file", "top", "hidden/below/file", "b/y/plain"):
        (tmp_path / path).write_text(path)
    (tmp_path / "b/link").symlink_to("../a")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "c/other").hardlink_to(tmp_path / "hidden/below/file")
    (tmp_path / "c/second").hardlink_to(tmp_path / "top")
    return tmp_path


HIDING = PathRules(hidden=(b"hidden", b"a/secret"))
HIDDEN = {"hidden", "a/secret", "c/other"}
"""With the second name of a file that is hidden."""


def test_it_meets_what_the_system_finds_parents_first_and_in_order(root: Path) -> None:
    fds = len(os.listdir("/proc/self/fd"))
    met: list[Directory] = []
    for found in walked(root, HIDING):
        assert isinstance(found, Directory)
        assert os.path.samestat(os.fstat(found.fd), os.stat(root / os.fsdecode(b"/".join(found.parts))))
        met.append(found)
    expected: dict[str, list[str]] = {}
    for top, directories, files in os.walk(root):
        directories.sort()
        above = "" if top == str(root) else os.path.relpath(top, root) + "/"
        directories[:] = [name for name in directories if above + name not in HIDDEN]
        links = [name for name in directories if (Path(top) / name).is_symlink()]
        expected[above] = sorted(name for name in [*directories, *files] if above + name not in HIDDEN)
        assert all(name in files or name in directories for name in links)
    assert [os.fsdecode(b"".join(part + b"/" for part in one.parts)) for one in met] == list(expected)
    for one, names in zip(met, expected.values(), strict=True):
        assert [os.fsdecode(name) for name, _ in one.entries] == names
        assert one.mounts == []
        for name, status in one.entries:
            assert os.path.samestat(status, os.lstat(root.joinpath(*map(os.fsdecode, one.parts), os.fsdecode(name))))
    hidden = {os.fsdecode(b"/".join((*one.parts, name))) for one in met for name in one.hidden}
    assert hidden == HIDDEN
    assert len(os.listdir("/proc/self/fd")) == fds


def test_what_is_there_only_as_a_directory_is_hidden_as_anything_else(root: Path) -> None:
    rules = Rules((), (), (), include=["/top/x", "/b/y/z"])
    names = {
        os.fsdecode(b"/".join((*found.parts, name)))
        for found in walked(root, rules)
        if isinstance(found, Directory)
        for name, _ in found.entries
    }
    assert names == {"b", "b/y", "b/y/z"}


class Covered(NestedMounts):
    """Takes two names for places where something is mounted."""

    def covers(self, parts: object) -> bool:
        return parts in ((b"b", b"y"), (b"hidden",))


def test_what_is_mounted_inside_is_named_and_left_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NestedMounts", Covered)
    found = {one.parts: one for one in walked(root, PathRules()) if isinstance(one, Directory)}
    assert (found[()].mounts, found[(b"b",)].mounts) == ([b"hidden"], [b"y"])
    assert (b"b", b"y") not in found
    assert b"y" not in [name for name, _ in found[(b"b",)].entries]
    top = next(walked(root, HIDING))
    assert isinstance(top, Directory)
    assert (top.mounts, top.hidden) == ([], [b"hidden"])


@pytest.mark.parametrize(
    ("depth", "unread"), [(1, {"b/y", "a/x", "a/secret", "hidden/below"}), (2, {"b/y/z"}), (3, set())]
)
def test_it_goes_no_deeper_than_its_bound(
    root: Path, depth: int, unread: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DEPTH", depth)
    found = [one for one in walked(root, PathRules()) if isinstance(one, Unread)]
    assert {os.fsdecode(b"/".join(one.parts)) for one in found} == unread
    assert {one.reason for one in found} <= {f"nested deeper than {depth} directories"}


def test_a_directory_that_can_not_be_entered_is_named_and_one_that_is_gone_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.open

    def refuse(path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == b"b":
            raise PermissionError(13, "words of ours")
        if path in (b"a", b"c"):
            raise FileNotFoundError if path == b"a" else NotADirectoryError
        return plain(path, flags, mode, dir_fd=dir_fd)

    fds = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "open", refuse)
    found = list(walked(root, PathRules()))
    assert [one.parts for one in found if isinstance(one, Unread)] == [(b"b",)]
    assert [one.reason for one in found if isinstance(one, Unread)] == ["Permission denied"]
    assert [one.parts for one in found if isinstance(one, Directory)] == [(), (b"hidden",), (b"hidden", b"below")]
    assert len(os.listdir("/proc/self/fd")) == fds


def test_names_are_counted_hidden_ones_too_and_one_too_many_ends_it(root: Path) -> None:
    fds = len(os.listdir("/proc/self/fd"))
    everything = sum(len(one.entries) + len(one.hidden) for one in walked(root, HIDING) if isinstance(one, Directory))
    assert list(walked(root, HIDING, everything))
    with pytest.raises(WalkOverrunError, match=f"more than {everything - 1} names"):
        list(walked(root, HIDING, everything - 1))
    assert len(os.listdir("/proc/self/fd")) == fds


def test_a_budget_is_of_names_and_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = Budget(3, 2.5)
    budget.spend(2)
    now[0] = 52.5
    budget.spend(1)
    now[0] = 52.6
    with pytest.raises(WalkOverrunError, match=r"within 2\.5 s"):
        budget.spend(0)
    now[0] = 50.0
    with pytest.raises(WalkOverrunError, match="more than 3 names"):
        budget.spend(1)
    with pytest.raises(WalkOverrunError, match="more than 1,000 names"):
        Budget(1000, 1).spend(1001)


def test_the_root_is_a_directory_that_no_link_has_replaced(root: Path) -> None:
    fd = open_root(root)
    assert stat.S_ISDIR(os.fstat(fd).st_mode)
    assert os.listdir(fd)
    os.close(fd)
    for path in (root / "top", root / "b/link", root / "none"):
        with pytest.raises(OSError, match="directory"):
            open_root(path)
