"""Counting what somebody else fills: at any depth, with few descriptors, and never elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

from sublet.disk.disk_usage import BLOCK_BYTES, disk_usage
from sublet.disk.removal import remove_tree
from support.deep_tree import nest


def used(path: Path) -> int:
    return path.lstat().st_blocks * BLOCK_BYTES


def test_files_at_every_depth_count(tmp_path: Path) -> None:
    top = tmp_path / "top"
    nest(top, 3_000)
    empty = disk_usage(top)
    fd = os.open(top, os.O_RDONLY)
    for _ in range(3_000):
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    with open(os.open("big", os.O_WRONLY | os.O_CREAT, dir_fd=fd), "wb") as file:
        file.write(bytes(1 << 20))
    os.close(fd)
    assert disk_usage(top) - empty == 1 << 20
    remove_tree(top)


def test_wide_and_deep_together_agree_with_a_plain_walk(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for number in range(30):
        directory = top / str(number % 5) / str(number)
        directory.mkdir(parents=True)
        (directory / "file").write_bytes(bytes(5_000 * number))
    assert disk_usage(top) == sum(used(path) for path in top.rglob("*"))


def test_a_link_counts_by_itself(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(1 << 20))
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(tmp_path)
    assert disk_usage(top) == used(top / "link")
    (tmp_path / "other").symlink_to(tmp_path)
    assert disk_usage(tmp_path / "other") == used(tmp_path / "other")


def test_it_stops_where_it_is_enough(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).write_bytes(bytes(8192))
    assert 8192 <= disk_usage(tmp_path, enough=10_000) < 8192 * 10
    assert disk_usage(tmp_path / "nothing") == 0
