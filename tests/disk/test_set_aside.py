"""What is set aside: out of the way, told, bounded in number and bytes; and nothing there raises."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sublet.disk import set_aside
from sublet.disk.set_aside import DIRECTORY, GOING, MAX_KEPT, MAX_TOLD, SetAside
from support.deep_tree import nest
from support.ordinary_user import as_ordinary_user, needs_root


def test_a_thing_is_moved_and_told(tmp_path: Path) -> None:
    aside = SetAside(tmp_path)
    odd = tmp_path / "staged" / os.fsdecode(b"caf\xe9\x1b[31m")
    odd.mkdir(parents=True)
    thing = aside.take(odd, "it is odd")
    assert not odd.exists()
    assert Path(thing.kept_as).is_dir()
    assert (thing.what, thing.why) == ("staged/caf\\xe9\\x1b[31m", "it is odd")
    assert list(aside.told) == [thing]
    kept = aside.keep("delegations/dlg_1", b"{", "it is torn")
    assert Path(kept.kept_as).read_bytes() == b"{"
    assert aside.count == 2


def test_what_can_not_be_moved_is_told_as_well(tmp_path: Path) -> None:
    aside = SetAside(tmp_path)
    thing = aside.take(tmp_path / "nothing", "it is gone")
    assert thing.kept_as == ""
    assert "can't be moved either" in thing.why


def test_names_are_those_of_our_making(tmp_path: Path) -> None:
    aside = SetAside(tmp_path)
    assert aside.names(tmp_path / "staged") == []
    for name in ("ours-2", "ours-1", "theirs"):
        (tmp_path / "staged" / name).mkdir(parents=True)
    assert aside.names(tmp_path / "staged", lambda name: name.startswith("ours")) == ["ours-1", "ours-2"]
    assert [thing.what for thing in aside.told] == ["staged/theirs"]


@pytest.mark.parametrize("kind", ["file", "fifo", "link", "dangling link"])
def test_what_is_no_directory_is_set_aside(tmp_path: Path, kind: str) -> None:
    aside, place, outside = SetAside(tmp_path / "state"), tmp_path / "state" / "scratch", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    place.parent.mkdir()
    match kind:
        case "file":
            place.touch()
        case "fifo":
            os.mkfifo(place)
        case "link":
            place.symlink_to(outside)
        case _:
            place.symlink_to(tmp_path / "nowhere")
    assert aside.names(place) == []
    assert not os.path.lexists(place)
    assert aside.count == 1
    assert (outside / "kept").exists()


def test_what_is_to_go_is_away_at_once_and_removed_by_the_sweep(tmp_path: Path) -> None:
    aside = SetAside(tmp_path)
    nest(tmp_path / "scratch" / "job", 1_500)
    aside.remove_later(tmp_path / "scratch" / "job")
    aside.remove_later(tmp_path / "scratch" / "job")
    assert os.listdir(tmp_path / "scratch") == []
    assert len(os.listdir(tmp_path / GOING)) == 1
    aside.sweep()
    assert os.listdir(tmp_path / GOING) == []
    assert aside.count == 0


def test_number_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = SetAside(tmp_path)
    things = [aside.keep("a/row", b"x", "torn") for _ in range(MAX_KEPT + MAX_TOLD)]
    aside.sweep()
    assert {thing.kept_as for thing in things[-MAX_KEPT:]} == {str(path) for path in (tmp_path / DIRECTORY).iterdir()}
    assert len(aside.told) == MAX_TOLD
    assert aside.count == len(things)
    monkeypatch.setattr(set_aside, "MAX_BYTES", 100_000)
    for _ in range(3):
        aside.keep("a/row", bytes(40_000), "torn")
    aside.sweep()
    assert 0 < sum(path.stat().st_size for path in (tmp_path / DIRECTORY).iterdir()) <= 100_000


@pytest.mark.parametrize("name", [DIRECTORY, GOING])
def test_something_in_its_own_place_is_no_obstacle(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not a directory")
    aside = SetAside(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert aside.take(tmp_path / "one", "odd").kept_as
    aside.remove_later(tmp_path / "two")
    aside.sweep()
    assert sorted(os.listdir(tmp_path)) == [GOING, DIRECTORY]
    assert os.listdir(tmp_path / GOING) == []


@needs_root
def test_a_closed_directory_of_an_ordinary_user_is_moved(tmp_path: Path) -> None:
    def attack() -> None:
        Path("scratch/job").mkdir(parents=True)
        Path("scratch/job").chmod(0)
        aside = SetAside(Path())
        aside.remove_later(Path("scratch/job"))
        assert os.listdir("scratch") == []
        aside.sweep()
        assert os.listdir(GOING) == []

    as_ordinary_user(tmp_path, attack)
