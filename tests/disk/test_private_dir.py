"""Writing where somebody else changes every name: links, FIFOs, directories and modes in place of ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sublet.disk import private_dir
from sublet.disk.private_dir import PrivateDir, make_fresh
from support.deep_tree import nest
from support.ordinary_user import as_ordinary_user, needs_root

PutThere = Callable[[Path, Path], object]
OBSTACLES: dict[str, PutThere] = {
    "nothing": lambda path, victim: None,
    "link to a directory": lambda path, victim: path.symlink_to(victim),
    "link to a file": lambda path, victim: path.symlink_to(victim / "kept"),
    "dangling link": lambda path, victim: path.symlink_to(victim / "new"),
    "fifo": lambda path, victim: os.mkfifo(path),
    "file": lambda path, victim: path.write_bytes(b"theirs"),
    "hard link": lambda path, victim: os.link(victim / "kept", path),
    "directory": lambda path, victim: nest(path, 3),
    "deep directory": lambda path, victim: nest(path, 300),
    "closed directory": lambda path, victim: nest(path, 2, mode=0),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of the owner's in which nothing may change."""
    made = tmp_path / "victim"
    made.mkdir()
    (made / "kept").write_bytes(b"kept")
    return made


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The directory that is an agent's as well."""
    made = tmp_path / "scratch"
    made.mkdir()
    return made


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_file_is_put_in_place_of_anything(scratch: Path, victim: Path, obstacle: str) -> None:
    OBSTACLES[obstacle](scratch / "prompt.txt", victim)
    with PrivateDir.open(scratch) as private:
        private.write("prompt.txt", b"ours")
        assert private.read("prompt.txt", 100) == b"ours"
    assert (scratch / "prompt.txt").stat().st_mode & 0o777 == 0o600
    assert os.listdir(scratch) == ["prompt.txt"]
    assert [(path.name, path.read_bytes()) for path in victim.iterdir()] == [("kept", b"kept")]


def test_what_takes_too_long_to_remove_is_moved(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_dir, "CLEAR_SECONDS", -1.0)
    nest(scratch / "home", 3)
    (scratch / "tmp").mkdir()
    nest(scratch / "prompt.txt", 3)
    with PrivateDir.open(scratch) as private:
        private.write("prompt.txt", b"ours")
        private.directory("home", fresh=True).close()
    assert (scratch / "prompt.txt").read_bytes() == b"ours"
    assert os.listdir(scratch / "home") == []
    assert sorted(name.partition("-")[0] for name in os.listdir(scratch)) == [
        ".replaced", ".replaced", "home", "prompt.txt", "tmp",
    ]  # fmt: skip


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_directory_is_entered_and_never_a_link(scratch: Path, victim: Path, obstacle: str) -> None:
    OBSTACLES[obstacle](scratch / "home", victim)
    with PrivateDir.open(scratch) as private, private.directory("home", ".config", "tool") as inner:
        inner.write("login.json", b"ours")
    assert (scratch / "home" / ".config" / "tool" / "login.json").read_bytes() == b"ours"
    assert not (scratch / "home").is_symlink()
    assert [(path.name, path.read_bytes()) for path in victim.iterdir()] == [("kept", b"kept")]


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_fresh_directory_is_empty(scratch: Path, victim: Path, obstacle: str) -> None:
    OBSTACLES[obstacle](scratch / "tools", victim)
    with PrivateDir.open(scratch) as private, private.directory("tools", fresh=True) as tools:
        assert os.listdir(scratch / "tools") == []
        tools.write("relay.py", b"ours", mode=0o500)
    assert (scratch / "tools" / "relay.py").stat().st_mode & 0o777 == 0o500
    assert [path.name for path in victim.iterdir()] == ["kept"]


def test_what_is_there_stays_there(scratch: Path) -> None:
    (scratch / "home").mkdir()
    (scratch / "home" / "theirs").write_bytes(b"theirs")
    with PrivateDir.open(scratch) as private, private.directory("home"):
        assert (scratch / "home" / "theirs").read_bytes() == b"theirs"


def test_the_directory_itself_is_no_link(scratch: Path, victim: Path) -> None:
    scratch.rmdir()
    scratch.symlink_to(victim)
    with pytest.raises(NotADirectoryError):
        PrivateDir.open(scratch)
    make_fresh(scratch, "a", "b")
    assert not scratch.is_symlink()
    assert sorted(os.listdir(scratch)) == ["a", "b"]
    assert os.listdir(victim) == ["kept"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0b"])
def test_a_name_is_one_component(scratch: Path, name: str) -> None:
    with PrivateDir.open(scratch) as private:
        for call in (private.remove, private.directory, lambda one: private.write(one, b""), private.open_file):
            with pytest.raises(ValueError, match="no name"):
                call(name)


@pytest.mark.parametrize("obstacle", ["fifo", "link to a file", "directory", "dangling link"])
def test_only_a_regular_file_is_read(scratch: Path, victim: Path, obstacle: str) -> None:
    OBSTACLES[obstacle](scratch / "answer", victim)
    with PrivateDir.open(scratch) as private:
        for call in (lambda: private.read("answer", 10), lambda: private.open_file("answer")):
            with pytest.raises(OSError, match=r"."):
                call()


@needs_root
def test_an_ordinary_user_gets_into_its_own_closed_directories(tmp_path: Path) -> None:
    def attack() -> None:
        Path("home/.config").mkdir(parents=True)
        Path("home/.config").chmod(0)
        Path("home").chmod(0)
        with PrivateDir.open(Path()) as private, private.directory("home", ".config") as inner:
            inner.write("settings", b"ours")

    as_ordinary_user(tmp_path, attack)
    assert (tmp_path / "home" / ".config" / "settings").read_bytes() == b"ours"
