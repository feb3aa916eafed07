"""Removing what somebody else has filled: deep, closed, flagged, mounted on, and changed meanwhile."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
from pathlib import Path

import pytest

from sublet.disk import removal
from sublet.disk.openat2 import Opener, open_beneath, walk_beneath
from sublet.disk.removal import is_removed, remove_beneath, remove_tree
from support.deep_tree import nest
from support.ordinary_user import as_ordinary_user, needs_root

TOO_LONG = 4_000
"""Levels whose path, of two bytes each, is twice as long as the kernel takes."""


@pytest.fixture(params=[open_beneath, walk_beneath], ids=["openat2", "walk"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Opener:
    """Each opener in turn."""
    chosen: Opener = request.param
    monkeypatch.setattr(removal, "choose_opener", lambda: chosen)
    return chosen


@pytest.mark.usefixtures("opener")
@pytest.mark.parametrize("depth", [1, removal.MAX_HELD, 1_000, TOO_LONG])
def test_a_deep_tree_goes(tmp_path: Path, depth: int) -> None:
    nest(tmp_path / "top", depth)
    (tmp_path / "top" / "file").write_bytes(b"x")
    remove_tree(tmp_path / "top")
    assert os.listdir(tmp_path) == []


def test_few_descriptors_are_open_at_once(tmp_path: Path) -> None:
    nest(tmp_path / "top", 2_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + removal.MAX_HELD + 16, hard))
    try:
        remove_tree(tmp_path / "top")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not (tmp_path / "top").exists()


def test_many_deep_branches_beside_each_other_go(tmp_path: Path) -> None:
    for number in range(20):
        nest(tmp_path / "top" / str(number), 3 * removal.MAX_HELD)
    for number in range(3 * removal.BATCH_NAMES):
        (tmp_path / "top" / f"file {number}").touch()
    remove_tree(tmp_path / "top")
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("opener")
def test_what_links_lead_to_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "link").symlink_to(outside)
    (top / "sub" / "link").symlink_to(outside)
    os.mkfifo(top / "fifo")
    (top / os.fsdecode(b"caf\xe9")).touch()
    remove_tree(top)
    assert (outside / "kept").read_bytes() == b"kept"
    assert not top.exists()
    (tmp_path / "name").symlink_to(outside)
    remove_tree(tmp_path / "name")
    assert (outside / "kept").exists()
    assert not os.path.lexists(tmp_path / "name")


def test_a_file_and_nothing_are_removed_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    remove_tree(tmp_path / "file")
    remove_tree(tmp_path / "file")
    remove_tree(tmp_path / "no" / "directory")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"a\0"])
def test_only_a_single_name_is_removed(tmp_path: Path, name: bytes) -> None:
    fd = os.open(tmp_path, os.O_PATH)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            remove_beneath(fd, name)
    finally:
        os.close(fd)


@needs_root
def test_closed_directories_go_for_an_ordinary_user(tmp_path: Path) -> None:
    def attack() -> None:
        top = Path("top")
        nest(top / "deep", 200, mode=0o000)
        for mode in (0o000, 0o111, 0o444, 0o600, 0o311):
            closed = top / f"mode {mode:o}"
            (closed / "sub").mkdir(parents=True)
            (closed / "file").touch()
            (closed / "sub").chmod(0)
            closed.chmod(mode)
        top.chmod(0)
        remove_tree(top)

    as_ordinary_user(tmp_path, attack)
    assert os.listdir(tmp_path) == []


@needs_root
def test_flags_are_no_obstacle_where_we_may_take_them_off(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "file").touch()
    (top / "sub").mkdir()
    (top / "sub" / "file").touch()
    for path, flag in ((top / "file", "+i"), (top / "sub" / "file", "+a"), (top / "sub", "+i"), (top, "+a")):
        if subprocess.run(["chattr", flag, str(path)], capture_output=True, check=False).returncode != 0:
            pytest.skip("this file system has no such flags")
    try:
        remove_tree(top)
        assert not top.exists()
    finally:  # nobody else could remove it
        subprocess.run(["chattr", "-R", "-ia", str(tmp_path)], capture_output=True, check=False)


@needs_root
@pytest.mark.usefixtures("opener")
def test_a_mount_is_not_entered_and_the_rest_goes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    place = tmp_path / "top" / "a" / "mount"
    place.mkdir(parents=True)
    (tmp_path / "top" / "z").mkdir()
    if subprocess.run(["mount", "--bind", str(outside), str(place)], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(OSError, match=r"."):
            remove_tree(tmp_path / "top")
        assert (outside / "kept").exists()
        assert os.listdir(tmp_path / "top") == ["a"]
        assert not is_removed(place)
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert is_removed(tmp_path / "top")


def test_a_removal_ends_when_its_time_is_over(tmp_path: Path) -> None:
    nest(tmp_path / "top", 3)
    with pytest.raises(TimeoutError):
        remove_tree(tmp_path / "top", seconds=-1)
    assert not is_removed(tmp_path / "top", seconds=-1)
    assert is_removed(tmp_path / "top")


def test_what_goes_on_being_filled_ends_in_time(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "first").touch()
    stop = threading.Event()

    def fill() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                (top / f"{number}").mkdir(parents=True, exist_ok=True)
            except OSError:
                continue

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        is_removed(top, seconds=0.5)
    finally:
        stop.set()
        filling.join()
    assert is_removed(top)
