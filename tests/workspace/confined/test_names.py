"""One name in a directory: held whatever becomes of it, and whether anything is there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.workspace.confined.names import held_name, is_there


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_name_is_there_also_as_a_link_that_leads_nowhere(directory: int) -> None:
    assert [is_there(directory, name) for name in (b"file", b"link", b"none")] == [True, True, False]
    with pytest.raises(NotADirectoryError):
        is_there(directory, b"file/below")


def test_what_is_held_stays_the_same_whatever_becomes_of_its_name(directory: int, tmp_path: Path) -> None:
    fds = len(os.listdir("/proc/self/fd"))
    for name in ("file", "link"):
        before = (tmp_path / name).lstat()
        with held_name(directory, name.encode()) as fd:
            (tmp_path / name).rename(tmp_path / "moved")
            assert os.path.samestat(os.fstat(fd), before)
            assert not os.get_inheritable(fd)
            with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
                os.read(fd, 1)
    with pytest.raises(OSError, match=os.strerror(errno.ESTALE)), held_name(directory, b"gone"):
        pass
    with pytest.raises(ValueError, match="inside"), held_name(directory, b"moved"):
        raise ValueError("inside")
    assert len(os.listdir("/proc/self/fd")) == fds
