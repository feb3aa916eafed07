"""Counting what somebody else fills: at any depth, with few descriptors, and never elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sublet.disk import disk_usage as usage_module
from sublet.disk.disk_usage import BLOCK_BYTES, disk_usage, measure_opened
from sublet.disk.removal import remove_tree
from sublet.supervisor.agent_config import LimitsConfig
from sublet.supervisor.limits import told
from sublet.workspace.sandbox.cage import CLOSED_SCRATCH, Cage
from support.deep_tree import nest
from support.ordinary_user import as_ordinary_user, needs_root


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


@needs_root
@pytest.mark.parametrize("mode", [0o000, 0o100, 0o200, 0o400, 0o300])
@pytest.mark.parametrize("place", ["shut", "shut/below", "."])
def test_what_an_ordinary_user_hides_by_modes_counts(tmp_path: Path, mode: int, place: str) -> None:
    def attack() -> None:
        top = Path("top")
        (top / "shut/below").mkdir(parents=True)
        (top / "shut/below/big").write_bytes(bytes(1 << 20))
        (top / place).chmod(mode)
        found = measure_opened(top)
        assert found.size >= 1 << 20
        assert not found.closed
        assert not measure_opened(top, enough=1000).closed

    as_ordinary_user(tmp_path, attack)


@needs_root
def test_what_somebody_else_keeps_shut_is_told(tmp_path: Path) -> None:
    (tmp_path / "top/theirs").mkdir(parents=True)
    (tmp_path / "top/theirs").chmod(0)

    def attack() -> None:
        assert measure_opened(Path("top")).closed

    as_ordinary_user(tmp_path, attack)
    assert not measure_opened(tmp_path / "top").closed  # root looks everywhere


def test_more_directories_than_are_looked_into_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_module, "MAX_PENDING_BYTES", 10)
    for number in range(20):
        (tmp_path / f"{number:02}").mkdir()
    assert measure_opened(tmp_path).closed


@needs_root
def test_a_scratch_directory_that_can_not_be_counted_is_too_full(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "theirs").mkdir(parents=True)
    (scratch / "theirs").chmod(0)

    def attack() -> None:
        met = Cage(None, Path("scratch"), 1 << 20).exceeded()
        assert met == CLOSED_SCRATCH
        assert "kept directories" in told(LimitsConfig(scratch_bytes=1 << 20), met)

    as_ordinary_user(tmp_path, attack)
