"""Where the delegator's own links and configuration lead to within a lent directory, so that rules hold there as well.

A rule goes by a name. Where that is a link, what is read by it has another name: ``.envrc -> env/rc`` is run by direnv,
and ``.env -> conf/production`` is a secret. So what a locked link leads to is locked, with the links on the way, and
what a hidden one leads to is hidden. What a repository's configuration names is locked likewise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.workspace.confined.descend import descend
from sublet.workspace.export import ViewRules
from sublet.workspace.git.obeyed import HOOKS, obeyed
from sublet.workspace.git.rules import REPOSITORY
from sublet.workspace.view.patterns import MAX_PATTERN_BYTES
from sublet.workspace.view.walk import open_root

MAX_PLACES: Final = 300
"""Names of one directory that are guarded since something leads to them."""
MAX_HOPS: Final = 40
MAX_STEPS: Final = 4096
"""Components looked up for one path."""
MAX_ROUNDS: Final = 8
"""How often what was found is looked through for links of its own."""
_SPECIAL = Pattern(rb"[*?\[]")

Parts = tuple[bytes, ...]


@dataclass(slots=True)
class LedTo:
    """Patterns of names to lock and to hide beside those that rules lock and hide by themselves."""

    locked: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.locked) + len(self.hidden)


def guarded(root: Path, rules_of: Callable[[Sequence[str], Sequence[str]], ViewRules]) -> ViewRules:
    """Return the rules by which ``root`` is lent, with what its links and configuration lead to. It blocks.

    Args:
        root: the directory, a real path.
        rules_of: makes the rules from further patterns to lock and to hide.

    Raises:
        SubletError: ``WORKSPACE_INVALID`` for a directory with more than ``MAX_PLACES`` such names, or links that lead
            to links over more than ``MAX_ROUNDS``.
    """
    found = LedTo()
    rules = rules_of((), ())
    top, repositories = os.fsencode(root), list(root.parents)
    links = list(_links(root, rules, repositories))
    for repository in repositories:
        _obeyed(repository, top, rules, found)
    for _ in range(MAX_ROUNDS):
        rules = rules_of(tuple(found.locked), tuple(found.hidden))
        before = found.count
        for parts in links:
            if not rules.hidden(parts[:-1]):
                _link(top, parts, rules, found)
        if found.count == before:
            return rules
    raise _too_many()


def _links(root: Path, rules: ViewRules, repositories: list[Path]) -> Iterator[Parts]:
    """Yield every link that is not in a hidden directory; add the work tree of each repository to ``repositories``."""
    try:
        fd = open_root(root)
    except OSError:
        return  # whoever serves it says so
    for level in descend(fd, (), lambda _: None):
        with os.scandir(level.fd) as entries:
            for entry in entries:
                parts = (*level.parts, os.fsencode(entry.name))
                if parts[-1].lower() == REPOSITORY:
                    repositories.append(root / os.fsdecode(b"/".join(level.parts)))
                elif entry.is_symlink():
                    yield parts
                elif entry.is_dir(follow_symlinks=False) and not rules.hidden(parts):
                    level.enter.append((parts[-1], False))


def _link(top: bytes, parts: Parts, rules: ViewRules, found: LedTo) -> None:
    hidden = rules.hidden(parts) and not rules.left_out(parts)
    if not hidden and not rules.locked(parts):
        return
    way = list(_leads(top, b"/".join((top, *parts))))
    end = way.pop()
    if hidden:
        _add(found.hidden, end, parts, rules.hidden)
    if not hidden or rules.locked(parts):
        way.append(end)
    for place in way:
        _add(found.locked, place, parts, rules.locked)


def _obeyed(repository: Path, top: bytes, rules: ViewRules, found: LedTo) -> None:
    for path in obeyed(repository):
        for place in _leads(top, os.fsencode(path)):
            if place == ():  # hooks lie beside all else that is lent
                for name in HOOKS:
                    _add(found.locked, (name,), (), rules.locked)
            _add(found.locked, place, (), rules.locked)


def _add(patterns: list[str], place: Parts | None, link: Parts, known: Callable[[Parts], bool]) -> None:
    """Add what something leads to, unless rules know it, it is nothing of the directory, or it holds the very link."""
    if not place or place == link[: len(place)] or place[0] == REPOSITORY or known(place):
        return
    pattern = os.fsdecode(b"/" + b"/".join(_SPECIAL.sub(lambda one: b"[" + one[0] + b"]", part) for part in place))
    if pattern in patterns:
        return
    if len(patterns) >= MAX_PLACES or len(os.fsencode(pattern)) > MAX_PATTERN_BYTES:
        raise _too_many()
    patterns.append(pattern)


def _too_many() -> SubletError:
    return SubletError(
        ErrorCode.WORKSPACE_INVALID,
        f"links and settings of git lead to more than {MAX_PLACES} names that would have to be guarded, over more than "
        f"{MAX_ROUNDS} links that lead to links, or to one with a path that is too long for that",
        "Leave the links out with --exclude, or lend a smaller directory.",
    )


def _leads(top: bytes, path: bytes) -> Iterator[Parts | None]:
    """Yield the links below ``top`` that a path goes by, and at last where it leads.

    That is None for elsewhere, and empty for ``top`` itself.
    What is not there counts as a plain name. Nothing outside of ``top`` is looked at.
    """
    todo = list(reversed(path.split(b"/")))
    done: list[bytes] = []
    hops = 0
    for _ in range(MAX_STEPS):
        if not todo:
            break
        part = todo.pop()
        if part == b"..":
            del done[-1:]
        elif part not in (b"", b"."):
            done.append(part)
            below = _below(top, done)
            target = _target(done) if below else None
            if target is None:
                continue
            yield below
            hops += 1
            if hops > MAX_HOPS:
                return
            done = [] if target.startswith(b"/") else done[:-1]
            todo.extend(reversed(target.split(b"/")))
    yield _below(top, done)


def _below(top: bytes, done: Sequence[bytes]) -> Parts | None:
    above = tuple(part for part in top.split(b"/") if part)
    return tuple(done[len(above) :]) if tuple(done[: len(above)]) == above else None


def _target(done: Sequence[bytes]) -> bytes | None:
    try:
        return os.readlink(b"/" + b"/".join(done))
    except OSError:
        return None
