"""The ignore engine, compared with its definition, plainly written down once more, on every short path."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from random import Random
from typing import Final

import pytest

from sublet.protocol.bounds import GitMode
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.git import rules as git_rules
from sublet.workspace.view import rules as module
from sublet.workspace.view.rules import MAX_CACHED_BYTES, MAX_CACHED_NAME, MAX_PATTERNS, Rules

NAMES: Final = ("a", "b", "A", "vendor", "b~1", ".GIT", ".sublet-x")
PATHS: Final = [
    path for length in range(4) for path in itertools.product(NAMES if length < 3 else NAMES[:4], repeat=length)
]
PACKAGES: Final = {"node_modules", "bower_components", "site-packages", "dist-packages", "vendor", "Pods"}

Path = tuple[str, ...]


@cache
def components(pattern: str) -> tuple[list[str], bool]:
    """Return a pattern's components, and whether it holds at any depth."""
    floating, anchored = pattern.startswith("**/"), "/" in pattern.removeprefix("**/").rstrip("/")
    parts = pattern.removeprefix("**/").strip("/").split("/")
    return (parts[:-1] if parts[-1] == "**" and len(parts) > 1 else parts), floating or not anchored


def agree(pattern: Sequence[str], path: Sequence[str], *, folds: bool) -> bool:
    lower = str.lower if folds else str
    return all(fnmatchcase(lower(name), lower(one)) for one, name in zip(pattern, path, strict=False))


def names(pattern: str, path: Path, *, folds: bool) -> bool:
    """Tell whether a pattern names exactly this path."""
    parts, floating = components(pattern)
    end = path[-len(parts) :] if floating else path
    return len(end) == len(parts) <= len(path) and agree(parts, end, folds=folds)


def leads_on(pattern: str, path: Path, *, folds: bool) -> bool:
    """Tell whether what a pattern names may lie below this path, by the way that the pattern writes down."""
    parts, floating = components(pattern)
    if not floating:
        return len(path) < len(parts) and agree(parts, path, folds=folds)
    return any(agree(parts, path[-size:], folds=folds) for size in range(1, min(len(parts) - 1, len(path)) + 1))


@dataclass
class Definition:
    """What ``Rules`` says of its arguments."""

    hidden: list[str] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    revealed: list[str] = field(default_factory=list)
    carried: list[str] = field(default_factory=list)
    unlocked: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    writable: list[str] = field(default_factory=list)
    folds: bool = False

    def rules(self, git: GitMode = "hidden") -> Rules:
        return Rules(
            self.hidden,
            self.locked,
            self.revealed,
            carried=self.carried,
            unlocked=self.unlocked,
            include=self.include,
            exclude=self.exclude,
            writable=self.writable,
            folds=self.folds,
            git=git,
        )

    def shuts(self, pattern: str) -> bool:
        """Tell whether a locking pattern holds in any letters."""
        return self.folds or pattern.lower() == pattern

    def is_hidden(self, path: Path) -> bool:
        hiding = [*self.hidden, *(["*~[0-9]*"] if self.folds else [])]
        for end in range(1, len(path) + 1):
            above = path[:end]
            shown = any(names(one[1:], above, folds=True) for one in hiding if one.startswith("!")) or any(
                names(one, above, folds=False) for one in self.revealed
            )
            if not shown and any(names(one, above, folds=True) for one in hiding if not one.startswith("!")):
                return True
        return self.is_left_out(path)

    def is_left_out(self, path: Path) -> bool:
        for end in range(1, len(path) + 1):
            above = path[:end]
            kept = any(names(one[1:], above, folds=True) for one in self.exclude if one.startswith("!"))
            if not kept and any(names(one, above, folds=True) for one in self.exclude if not one.startswith("!")):
                return True
        on_the_way = not path or any(components(one)[1] or leads_on(one, path, folds=False) for one in self.include)
        return bool(self.include) and not self.includes(path) and not on_the_way

    def includes(self, path: Path) -> bool:
        return any(names(one, path[:end], folds=False) for one in self.include for end in range(1, len(path) + 1))

    def is_directory_only(self, path: Path) -> bool:
        return bool(self.include and path) and not self.includes(path)

    def is_read_only(self, path: Path) -> bool:
        allowed = [one if one.startswith("**/") else "/" + one.removeprefix("./") for one in self.writable]
        return bool(allowed and path) and not any(
            names(one, path[:end], folds=False) for one in allowed for end in range(1, len(path) + 1)
        )

    def is_locked(self, path: Path) -> bool:
        for end in range(1, len(path) + 1):
            above = path[:end]
            packed = not PACKAGES.isdisjoint(above[:-1])
            locking = self.locked if packed else [*self.locked, *self.carried]
            shut = any(names(one, above, folds=self.shuts(one)) for one in locking)
            opened = above[-1].lower() != ".git" and any(names(one, above, folds=False) for one in self.unlocked)
            if shut and not opened:
                return True
        return self.is_read_only(path)

    def is_secret(self, path: Path) -> bool:
        chosen = self.is_left_out(path) or self.is_directory_only(path) or self.is_locked(path)
        reserved = any(part.startswith(".sublet-") for part in path)
        return bool(path) and self.is_hidden(path) and not chosen and not reserved

    def guards_below(self, path: Path) -> bool:
        folding = [one.removeprefix("!") for one in [*self.hidden, *self.exclude]]
        return (
            any(leads_on(one, path, folds=True) for one in folding)
            or any(leads_on(one, path, folds=False) for one in [*self.revealed, *self.unlocked, *self.include])
            or any(leads_on(one, path, folds=self.shuts(one)) for one in [*self.locked, *self.carried])
        )

    def is_packed(self, path: Path) -> bool:
        return any(components(one)[1] for one in self.carried) and not PACKAGES.isdisjoint(path)


PARTS: Final = ("a", "b", "A", "*", "?", "[ab]", "[!a]", "vendor", ".git", "v*", ".sublet-*")


def drawn(random: Random) -> Definition:
    """Return rules of a few patterns of each kind."""

    def pattern(*starts: str, ends: Sequence[str] = ("", "", "/**", "/"), most: int = 3) -> str:
        parts = [random.choice(PARTS) for _ in range(random.randint(1, most))]
        return random.choice(starts) + "/".join(parts) + random.choice(ends)

    def patterns(most: int, mark: str = "") -> list[str]:
        return [random.choice(("", "", mark)) + pattern("", "", "/", "**/") for _ in range(random.randint(0, most))]

    return Definition(
        hidden=patterns(3, "!"),
        locked=patterns(2),
        revealed=patterns(2),
        carried=patterns(2),
        unlocked=patterns(2),
        include=patterns(1),
        exclude=patterns(2, "!"),
        writable=[pattern("", "./", "**/", ends=("",), most=2) for _ in range(random.randint(0, 1))],
        folds=random.random() < 0.5,
    )


FIXED = [
    Definition(),
    Definition(hidden=["a", "!A"], locked=["B", "b/a"], revealed=["a/a"]),
    Definition(hidden=["**/a/b", "/b"], carried=["a", "**/b/a"], unlocked=["b/a", ".GIT"], locked=[".git"]),
    Definition(include=["a/b/**"], exclude=["b", "!b/b", "**/a/A", "!**/b/a/A"]),
    Definition(include=["**/a/b"], hidden=["vendor"], locked=["vendor/a"]),
    Definition(include=["b"], locked=["/vendor"], writable=["a/b", "**/A"]),
    Definition(writable=["./a"], hidden=["b"], locked=["A"], folds=True),
    Definition(carried=["a"], locked=["/A/b"], folds=True, hidden=["*", "!b", "!b~1"], revealed=["A"]),
    Definition(carried=["/a"], hidden=["*"], exclude=["A", "!a"], unlocked=["*"]),
]


def compare(definition: Definition) -> None:
    rules = definition.rules()
    for path in PATHS:
        parts = tuple(part.encode() for part in path)
        assert {
            "hidden": rules.hidden(parts),
            "left out": rules.left_out(parts),
            "directory only": rules.directory_only(parts),
            "locked": rules.locked(parts),
            "read only": rules.read_only(parts),
            "secret": rules.secret(parts),
            "guards": rules.guards_below(parts),
            "packed": rules.packed(parts),
        } == {
            "hidden": definition.is_hidden(path),
            "left out": definition.is_left_out(path),
            "directory only": definition.is_directory_only(path),
            "locked": definition.is_locked(path),
            "read only": definition.is_read_only(path),
            "secret": definition.is_secret(path),
            "guards": definition.guards_below(path),
            "packed": definition.is_packed(path),
        }, (path, definition)
        if path and (rules.hidden(parts) and not rules.hidden(parts[:-1])):
            assert rules.notable(parts[-1]), path


@pytest.mark.parametrize("seed", range(40))
def test_rules_are_as_they_are_defined(seed: int) -> None:
    compare(drawn(Random(seed)))


@pytest.mark.parametrize("definition", FIXED, ids=range(len(FIXED)))
def test_rules_of_each_kind_are_as_they_are_defined(definition: Definition) -> None:
    compare(definition)


BELOW = [
    (),
    *((name,) for name in (b"HEAD", b"config", b"hooks", b"objects", b"index", b"index.lock", b"refs", b"modules")),
    *((b"objects", name) for name in (b"info", b"ab", b"pack")),
    *((b"refs", b"heads", b"main"), (b"objects", b"ab", b"1" * 38), (b"objects", b"ab", b"tmp_obj_1"), (b"x", b"y")),
]


@pytest.mark.parametrize("git", ["hidden", "ro", "rw"])
def test_a_repository_at_the_root_goes_by_its_mode_alone(git: GitMode) -> None:
    definition = Definition(hidden=[".git", "*"], locked=["HEAD"], include=["src"], exclude=["refs"], writable=["x"])
    rules = definition.rules(git)
    for below in BELOW:
        parts = (b".git", *below)
        text = tuple(part.decode() for part in parts)
        shown = git != "hidden"
        asked = [rules.left_out, rules.directory_only, rules.read_only, rules.bars_links]
        if not shown:
            assert [ask(parts) for ask in asked] == [
                *(definition.is_left_out(text), definition.is_directory_only(text)),
                *(definition.is_read_only(text), False),
            ]
            assert rules.hidden(parts) == definition.is_hidden(text)
            assert [rules.kept(parts), rules.checked(parts), rules.draft(parts)] == [False] * 3
            continue
        assert [ask(parts) for ask in asked] == [False, not below, False, True]
        assert not rules.secret(parts)
        assert rules.hidden(parts) is (bool(below) and not git_rules.shown(below))
        assert rules.locked(parts) is (git == "ro" or not below or not git_rules.writable(below))
        assert rules.kept(parts) is (bool(below) and git_rules.kept(below))
        assert rules.checked(parts) is (bool(below) and git_rules.checked(below))
        assert rules.draft(parts) is (bool(below) and git_rules.draft(below))
        assert rules.may_be_directory(parts) is (bool(below) and git_rules.may_be_directory(below))
        # anywhere else it is a name like others
        assert not rules.bars_links((b"sub", *parts))
        assert rules.hidden((b"sub", *parts))
        assert not rules.kept((b"sub", *parts))
    assert [rules.hidden(()), rules.locked(()), rules.bars_links(()), rules.directory_only(())] == [False] * 4


def test_the_rules_without_a_repository_are_the_same_but_for_that() -> None:
    for definition in FIXED:
        rules = definition.rules("rw").without_repository()
        assert rules.hidden((b".git", b"HEAD")) == definition.is_hidden((".git", "HEAD"))
        for path in PATHS:
            parts = tuple(part.encode() for part in path)
            assert rules.hidden(parts) == definition.is_hidden(path)
            assert rules.locked(parts) == definition.is_locked(path)
    plain = Definition().rules()
    assert plain.without_repository() is plain
    assert not plain.only_adds()
    assert Rules([], [], [], only_adds=True, git="ro").without_repository().only_adds()
    assert plain.hides()


def test_a_number_of_patterns_of_all_kinds_together_is_taken() -> None:
    assert MAX_PATTERNS == 1_000
    most = ["a"] * 125

    def made(*hidden: str) -> Rules:
        return Rules(
            hidden, most, most, carried=most, unlocked=most, include=most, exclude=most, writable=most, folds=True
        )

    made(*most)
    with pytest.raises(SubletError, match="more than 1000 patterns") as refused:
        made(*most, "a")
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


SECRET, LONG, LONGER = b"secret", b"x" * 255, b"y" * 256
KEPT = 255 + 160 + 6 + 160 + 240
"""Bytes of ``LONG`` and ``SECRET`` with what keeps them."""


@pytest.mark.parametrize(
    ("bound", "looked"), [(KEPT, [b"a"]), (KEPT - 1, [b"a", LONG, SECRET]), (KEPT + 161, [b"a", b"b"])]
)
def test_what_is_remembered_of_names_has_a_bound(
    bound: int, looked: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (MAX_CACHED_BYTES, MAX_CACHED_NAME) == (4 << 20, 255)
    seen: list[bytes] = []
    look = Rules._look_at

    def counted(self: Rules, part: bytes) -> object:
        seen.append(part)
        return look(self, part)

    monkeypatch.setattr(Rules, "_look_at", counted)
    monkeypatch.setattr(module, "MAX_CACHED_BYTES", bound)
    rules = Rules(["secret*"], [], [])
    for name in (LONG, LONGER, SECRET, LONG, LONGER, SECRET):
        rules.hidden((name,))
    assert seen == [LONG, LONGER, SECRET, LONGER]
    for name in (b"a", b"b", LONG, SECRET) if len(looked) == 2 else (b"a", LONG, SECRET, LONG, SECRET):
        rules.hidden((name,))
    assert seen[4:] == looked
