"""A file that somebody else put there is read as a file, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sublet.disk.plain_file import read_plain


def test_a_file_is_read_up_to_one_byte_beyond_the_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    assert read_plain(tmp_path / "f", 20) == b"0123456789"
    assert read_plain(tmp_path / "f", 3) == b"0123"


def test_nobody_is_waited_for_and_nothing_read_without_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("fifo", "zero", "."):
        with pytest.raises(OSError, match=r"no regular file|Is a directory"):
            read_plain(tmp_path / name, 10)


def test_a_link_is_followed_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "link").symlink_to("f")
    assert read_plain(tmp_path / "link", 10) == b"x"
    with pytest.raises(OSError, match="symbolic links"):
        read_plain(tmp_path / "link", 10, follow=False)


def test_what_is_refused_leaves_nothing_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("fifo", ".") * 5:
        with pytest.raises(OSError, match=r"no regular file|Is a directory"):
            read_plain(tmp_path / name, 10)
    assert len(os.listdir("/proc/self/fd")) == before
