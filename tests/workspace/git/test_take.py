"""What is opened to look at a file that an executor gives a repository, and that all of it is closed again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.workspace.git.index import MAX_INDEX_BYTES
from sublet.workspace.git.take import Looking, _before, looking
from sublet.workspace.view.rules import Rules

RULES = Rules((), (), (), git="rw")
INDEX = (b".git", b"index")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_is_to_be_replaced_is_a_regular_file_or_nothing(directory: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    before = descriptors()
    assert _before(directory, b"absent") is None
    for name in (b"link", b"dangling", b"directory", b"fifo"):
        with pytest.raises(PermissionError):
            _before(directory, name)
    assert descriptors() == before
    fd = _before(directory, b"file")
    assert fd is not None
    assert os.read(fd, 9) == b"x"
    os.close(fd)


def look_of(directory: int, tmp_path: Path) -> Looking:
    (tmp_path / "index").write_bytes(b"before")
    (tmp_path / "new").write_bytes(b"new")
    return looking(directory, b"new", directory, INDEX, RULES)


def test_a_shared_part_is_read_only_where_it_is_a_file_of_the_repository(directory: int, tmp_path: Path) -> None:
    before = descriptors()
    found = look_of(directory, tmp_path)
    (tmp_path / "outside").write_bytes(b"outside")
    (tmp_path / "sharedindex.file").write_bytes(b"shared")
    (tmp_path / "sharedindex.link").symlink_to("outside")
    (tmp_path / "sharedindex.directory").mkdir()
    os.mkfifo(tmp_path / "sharedindex.fifo")
    with open(tmp_path / "sharedindex.large", "wb") as file:
        file.truncate(MAX_INDEX_BYTES + 100)
    assert found._shared("file") == b"shared"
    for name in ("link", "directory", "fifo", "absent"):
        assert found._shared(name) == b""
    assert len(found._shared("large")) == MAX_INDEX_BYTES
    found.drop()
    assert descriptors() == before


def test_all_is_closed_whether_it_was_looked_at_or_not(directory: int, tmp_path: Path) -> None:
    before = descriptors()
    found = look_of(directory, tmp_path)
    assert descriptors() == before + 3
    found.drop()
    found.drop()
    assert descriptors() == before
    found = look_of(directory, tmp_path)
    with pytest.raises(OSError, match="denied"):
        found.look()
    assert descriptors() == before
    (tmp_path / "new").unlink()
    with pytest.raises(FileNotFoundError):
        looking(directory, b"new", directory, INDEX, RULES)
    assert descriptors() == before


def test_what_can_not_be_read_of_the_one_before_leaves_nothing_open(
    directory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    found = look_of(directory, tmp_path)

    def broken(*_: object, **__: object) -> bytes:
        raise OSError(5, "broken disk")

    monkeypatch.setattr("sublet.workspace.git.take.read_beginning", broken)
    with pytest.raises(OSError, match="broken disk"):
        found.look()
    assert descriptors() == before
