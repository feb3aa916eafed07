"""Whatever an executor and a person do, taking back restores the tree, and nothing of the person's is lost."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from support.kept import LiveLease, picture, settled, tick

NAMES = ["a", "b", "c", "d", "d/x", "d/y", "d/e", "d/e/z", "new", "new/n", "link"]
OPERATIONS = 40
SEEDS = int(os.environ.get("SUBLET_TEST_SEEDS", "40"))


def make_tree(root: Path, chance: random.Random) -> None:
    (root / "d/e").mkdir(parents=True)
    for name in ("a", "b", "d/x", "d/e/z"):
        (root / name).write_text(f"before {name}\n" * chance.randint(1, 30))
        (root / name).chmod(chance.choice([0o644, 0o600, 0o755]))
    os.symlink("a", root / "link")


class Executor:
    """Does anything that the lease lets it do."""

    def __init__(self, lease: LiveLease, chance: random.Random) -> None:
        self.lease = lease
        self.chance = chance
        self.count = 0

    def act(self) -> None:
        self.count += 1
        actions: list[Callable[[tuple[bytes, ...]], None]] = [
            self.rewrite,
            self.rewrite,
            self.patch,
            self.append,
            self.cut,
            self.remove,
            self.rename,
            self.mkdir,
            self.rmdir,
            self.chmod,
            self.symlink,
        ]
        with suppress(OSError):
            self.chance.choice(actions)(self.name())

    def name(self) -> tuple[bytes, ...]:
        return tuple(self.chance.choice(NAMES).encode().split(b"/"))

    def text(self) -> bytes:
        return f"executor {self.count}\n".encode() * self.chance.randint(1, 20)

    def rewrite(self, parts: tuple[bytes, ...]) -> None:
        self.lease.write(b"/".join(parts).decode(), self.text())

    def patch(self, parts: tuple[bytes, ...]) -> None:
        file = self.lease.fs.open_write(parts, os.O_WRONLY, 0)
        try:
            file.write(self.text(), self.chance.randint(0, 100))
        finally:
            file.close()

    def append(self, parts: tuple[bytes, ...]) -> None:
        file = self.lease.fs.open_write(parts, os.O_WRONLY | os.O_APPEND, 0)
        try:
            file.write(self.text(), 0)
        finally:
            file.close()

    def cut(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.set_attributes(parts, size=self.chance.randint(0, 50))

    def remove(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.remove(parts)

    def rename(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.rename(parts, self.name(), replace=self.chance.random() < 0.7)

    def mkdir(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.mkdir(parts, 0o755)

    def rmdir(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.rmdir(parts)

    def chmod(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.set_attributes(parts, mode=self.chance.choice([0o644, 0o700, 0o755, 0o600]))

    def symlink(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.symlink(b"b", parts)


class Person:
    """Edits the same files, and knows which lines are not to be lost: those that the person has not taken away."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self.chance = chance
        self.count = 0
        self.lines: set[str] = set()

    def act(self) -> None:
        self.count += 1
        path = self.root / self.chance.choice(NAMES)
        with suppress(OSError):
            self.chance.choice([self.append, self.rewrite, self.replace, self.remove])(path)

    def line(self) -> str:
        return f"person {self.count} " + "x" * self.chance.randint(1, 50) + "\n"

    def append(self, path: Path) -> None:
        line = self.line()
        if not path.is_symlink():
            with path.open("a") as file:
                file.write(line)
            self.lines.add(line)

    def rewrite(self, path: Path) -> None:
        line = self.line()
        if not path.is_symlink():
            self.takes_away(path)
            path.write_text(line)
            self.lines.add(line)

    def replace(self, path: Path) -> None:
        line = self.line()
        if not path.is_dir():
            beside = self.root / ".beside"
            beside.write_text(line)
            self.takes_away(path)
            os.replace(beside, path)
            self.lines.add(line)

    def remove(self, path: Path) -> None:
        self.takes_away(path)
        path.unlink()

    def takes_away(self, path: Path) -> None:
        if path.is_file() and not path.is_symlink():
            text = path.read_text()
            self.lines -= {line for line in self.lines if line in text}


def everything_in(*places: Path) -> str:
    return "".join(
        path.read_bytes().decode(errors="replace")
        for place in places
        for path in place.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_alone_the_tree_is_as_it_was(state: Path, root: Path, seed: int) -> None:
    chance = random.Random(seed)
    make_tree(root, chance)
    before = picture(root)
    settled(root)
    lease = LiveLease(state, root)
    executor = Executor(lease, chance)
    for number in range(OPERATIONS):
        if seed % 3 == 0 and number == OPERATIONS // 2:
            lease.open()  # as after a kill: nothing of the first process was tidied up
        executor.act()
    account = lease.end()
    assert account.others == ()
    assert account.after == ()
    report = lease.take_back()
    assert report.conflicts == ()
    assert picture(root) == before


@pytest.mark.parametrize("seed", range(SEEDS))
def test_beside_a_person_nothing_of_the_persons_is_lost(state: Path, root: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    make_tree(root, chance)
    settled(root)
    lease = LiveLease(state, root)
    executor, person = Executor(lease, chance), Person(root, chance)
    for _ in range(OPERATIONS):
        tick(tmp_path)
        (person if chance.random() < 0.4 else executor).act()
    tick(tmp_path)
    lease.end()
    held = everything_in(root, lease.kept)
    assert [line for line in person.lines if line not in held] == []
    lease.take_back()
    held = everything_in(root, lease.kept)
    assert [line for line in person.lines if line not in held] == []
