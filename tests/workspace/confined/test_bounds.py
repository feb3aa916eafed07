"""What an executor may not make: names that are too deep, and modes that shut out whoever makes the audit."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from sublet.workspace.confined.bounds import (
    MAX_DEPTH,
    check_depth,
    check_readable,
    open_up,
    readable_directory,
    readable_file,
)

TOO_LONG, DENIED = os.strerror(errno.ENAMETOOLONG), os.strerror(errno.EACCES)


def test_the_deepest_directory_is_one_that_can_still_be_listed() -> None:
    assert MAX_DEPTH == 200
    check_depth([b"x"] * 201)
    check_depth([b"x"] * 200, directory=True)
    with pytest.raises(OSError, match=TOO_LONG):
        check_depth([b"x"] * 202)
    with pytest.raises(OSError, match=TOO_LONG):
        check_depth([b"x"] * 201, directory=True)


def test_an_owner_can_read_what_is_made() -> None:
    for mode in range(0o1000):
        assert readable_file(mode) == mode | 0o400
        assert readable_directory(mode) == mode | 0o500


@pytest.mark.parametrize(("kind", "needed"), [(stat.S_IFREG, 0o400), (stat.S_IFDIR, 0o500)])
def test_what_the_owner_could_read_stays_so(kind: int, needed: int) -> None:
    for held in (0, 0o100, 0o200, 0o400, 0o500, 0o777):
        for mode in (0, 0o100, 0o200, 0o400, 0o500, 0o077, 0o777):
            status = os.stat_result((kind | held, *([0] * 9)))
            if held & needed & ~mode:
                with pytest.raises(OSError, match=DENIED):
                    check_readable(status, mode)
            else:
                check_readable(status, mode)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("file", 0o040, 0o440),
        ("file", 0o440, 0o440),
        ("directory", 0o070, 0o570),
        ("directory", 0o400, 0o500),
        ("directory", 0o500, 0o500),
        ("set", 0o4040, 0o440),
    ],
)
def test_a_private_tree_is_opened_up(tmp_path: Path, name: str, before: int, after: int) -> None:
    path = tmp_path / name
    path.mkdir() if name == "directory" else path.write_text("x")
    (tmp_path / "link").symlink_to(name)
    path.chmod(before)
    fd, fds = os.open(tmp_path, os.O_RDONLY), len(os.listdir("/proc/self/fd"))
    try:
        open_up(fd, b"link", (tmp_path / "link").lstat())
        assert stat.S_IMODE(path.stat().st_mode) == before
        open_up(fd, name.encode(), path.lstat())
        assert stat.S_IMODE(path.stat().st_mode) == after
        path.chmod(before)
        (tmp_path / "other").write_text("y")
        (tmp_path / "other").chmod(0o040)
        open_up(fd, name.encode(), (tmp_path / "other").lstat())  # it was another file when it was listed
        assert stat.S_IMODE(path.stat().st_mode) == before
        assert len(os.listdir("/proc/self/fd")) == fds
    finally:
        os.close(fd)
        path.chmod(0o700)
