"""What is open beneath a root: listings that show what the tree shows, and files that are read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.workspace.confined.handles import Directory, Parent, ReadFile
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.export import ViewRules
from sublet.workspace.viewpath import Parts
from support.sftp_client import PathRules


class DirectoriesOnly(PathRules):
    """Hides two names, and shows one only where it is a directory."""

    def directory_only(self, parts: Parts) -> bool:
        return parts[-1].startswith(b"only")


class Tree:
    """What a handle asks of the tree that it is in."""

    def __init__(self) -> None:
        self.rules: ViewRules = DirectoriesOnly(hidden=(b"top/hidden", b"top/own"))
        self.unknown: list[bytes] = []
        self.asked: list[Parts] = []
        self.released: list[int] = []
        self.gone: list[bytes] = []

    def covers(self, parts: Parts) -> bool:
        return parts[-1] == b"mounted"

    def shows(self, parts: Parts) -> bool:
        return not self.rules.hidden(parts) or parts[-1] == b"own"

    def visible(self, parts: Parts, status: os.stat_result, directory: int, name: bytes = b"") -> os.stat_result:
        assert os.path.samestat(os.stat(name, dir_fd=directory, follow_symlinks=False), status)
        self.asked.append(parts)
        if name in self.unknown:
            self.unknown.remove(name)
            raise NotKnownYet(lambda: None, lambda: None)
        if name in self.gone:
            raise FileNotFoundError
        return status

    def check_shown(self, status: os.stat_result, parts: Parts) -> None:
        self.asked.append(parts)

    def release(self, fd: int) -> None:
        self.released.append(fd)

    def exchange(self, fd: int, other: int) -> None:
        raise AssertionError


@pytest.fixture
def tree() -> Tree:
    return Tree()


def opened(root: Path, tree: Tree) -> Directory:
    return Directory(os.open(root, os.O_RDONLY), [b"top"], tree)


def test_a_listing_shows_what_the_tree_shows_each_with_its_own_status(tmp_path: Path, tree: Tree) -> None:
    for file in ("plain", "hidden", "own", "mounted", "only-file", "two"):
        (tmp_path / file).write_text(file)
    for made in ("only-directory", "directory"):
        (tmp_path / made).mkdir()
    (tmp_path / "second").hardlink_to(tmp_path / "two")
    (tmp_path / "link").symlink_to("plain")
    tree.gone = [b"only-file"]
    directory = opened(tmp_path, tree)
    assert os.path.samestat(directory.stat(), tmp_path.stat())
    found = dict(directory.entries())
    assert set(found) == {
        *(b"plain", b"own", b"two", b"second", b"link"),
        *(b"only-directory", b"directory"),
    }
    for name, status in found.items():
        assert os.path.samestat(status, (tmp_path / os.fsdecode(name)).lstat())
    # whoever has one name and is no directory of a rule needs no second look
    assert set(tree.asked) == {(b"top", name) for name in (b"own", b"two", b"second", b"only-file")}
    assert list(directory.entries()) == []
    fds = len(os.listdir("/proc/self/fd"))
    directory.close()
    assert len(os.listdir("/proc/self/fd")) < fds


def test_what_is_not_known_yet_comes_again(tmp_path: Path, tree: Tree) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        (tmp_path / f"{name}2").hardlink_to(tmp_path / name)
    tree.unknown = [b"a", b"b2"]
    directory, found, asked = opened(tmp_path, tree), [], 0
    while True:
        try:
            entry = next(directory)
        except NotKnownYet:
            asked += 1
            continue
        except StopIteration:
            break
        assert entry is not None
        found.append(entry[0])
    assert (sorted(found), asked) == ([b"a", b"a2", b"b", b"b2"], 2)
    directory.close()


@pytest.mark.parametrize(("skipped", "pauses"), [(0, 0), (63, 0), (64, 1), (130, 2)])
def test_others_get_on_where_much_is_passed_over(tmp_path: Path, tree: Tree, skipped: int, pauses: int) -> None:
    for number in range(skipped):
        (tmp_path / f"only{number}").touch()
    tree.gone = [b"only%d" % number for number in range(skipped)]
    directory = opened(tmp_path, tree)
    found = list(directory.entries_or_pauses())
    assert found == [None] * pauses
    directory.close()


def test_a_parent_that_is_the_root_stays_open(tmp_path: Path) -> None:
    for owned in (True, False):
        fd = os.open(tmp_path, os.O_RDONLY)
        with Parent(fd, owned=owned) as inner:
            assert inner == fd
        if owned:
            with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
                os.fstat(fd)
        else:
            os.close(fd)


@pytest.fixture
def read(tmp_path: Path, tree: Tree) -> Iterator[ReadFile]:
    (tmp_path / "file").write_bytes(b"content")
    file = ReadFile(tree, os.open(tmp_path / "file", os.O_RDONLY), [b"dir", b"file"])
    yield file
    os.close(file.fd)


def test_a_file_is_read_and_looked_at_again_once_it_has_further_names(
    tmp_path: Path, tree: Tree, read: ReadFile
) -> None:
    assert [read.read(size, offset) for size, offset in ((3, 0), (99, 4), (1, 7))] == [b"con", b"ent", b""]
    assert tree.asked == []
    (tmp_path / "second").hardlink_to(tmp_path / "file")
    assert read.read(7, 0) == b"content"
    assert tree.asked == [(b"dir", b"file")]
    assert os.path.samestat(read.stat(), (tmp_path / "file").stat())
    again = read.duplicate()
    assert again != read.fd
    assert os.path.samestat(os.fstat(again), read.stat())
    os.close(again)
    read.close()
    assert tree.released == [read.fd]
