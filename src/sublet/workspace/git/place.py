"""Where the repository of a lent directory is, found without git: it never takes the directory itself for one.

Git takes any directory with ``HEAD``, ``objects`` and ``refs`` for a repository and obeys its configuration. So the
place is found by the name ``.git`` alone, which no executor can make, and of what is there only a few files are read.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.disk.plain_file import read_beginning
from sublet.workspace.git.config import MAX_CONFIG_BYTES, Config, read_config
from sublet.workspace.git.rules import REPOSITORY

MAX_POINTER_BYTES: Final = 4096
"""Of a file that holds one path or one reference."""
MAX_ALTERNATES: Final = 16
_GITDIR: Final = b"gitdir: "
_REF: Final = b"ref: "
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CONTROL: Final = frozenset([*range(0x21), 0x7F])


@dataclass(frozen=True, slots=True)
class RepositoryPlace:
    """One repository.

    ``common`` is the directory with its objects and references, ``prefix`` the path from the top of the work tree to
    the lent directory, with a slash at its end where it is not empty. ``head`` is a reference or an object's name,
    empty where HEAD holds neither. ``config`` is what its configuration says, and ``alternates`` are the directories of
    other repositories whose objects it uses.
    """

    common: Path
    prefix: bytes
    head: str
    config: Config
    alternates: tuple[Path, ...]

    @property
    def objects(self) -> Path:
        """The directory of its objects."""
        return self.common / "objects"


def find(root: Path) -> RepositoryPlace | None:
    """Return the repository that ``root`` lies in; None where there is none. It blocks.

    Args:
        root: a lent directory, a real path.
    """
    for top in (root, *root.parents):
        own = _own(top / os.fsdecode(REPOSITORY))
        if own is not None:
            below = os.fsencode(root.relative_to(top))
            common = _common(own)
            if not os.path.isdir(common / "objects") or not os.path.isdir(common / "refs"):
                return None
            return RepositoryPlace(
                common,
                b"" if below == b"." else below + b"/",
                _head(own),
                read_config(read_file(common / "config", MAX_CONFIG_BYTES)),
                tuple(_alternates(common / "objects")),
            )
    return None


def place_of(top: Path) -> tuple[Path, Path] | None:
    """Return the repository of the work tree ``top`` and the one with its objects; None where ``top`` is no top."""
    own = _own(top / os.fsdecode(REPOSITORY))
    return None if own is None else (own, _common(own))


def _own(path: Path) -> Path | None:
    """Return the directory that is, or that a file points to as, the repository of one work tree."""
    try:
        mode = path.stat().st_mode  # a person may have made .git a link
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return Path(os.path.realpath(path))
    content = read_file(path, MAX_POINTER_BYTES)
    if not stat.S_ISREG(mode) or not content.startswith(_GITDIR):
        return None
    target = _path(content.removeprefix(_GITDIR), path.parent)
    return target if target is not None and os.path.isdir(target) else None


def _common(own: Path) -> Path:
    return _path(read_file(own / "commondir", MAX_POINTER_BYTES), own) or own


def _path(content: bytes, beside: Path) -> Path | None:
    name = content.rstrip(b"\r\n")
    if not name or b"\0" in name or b"\n" in name:
        return None
    return Path(os.path.realpath(beside / os.fsdecode(name)))


def _head(own: Path) -> str:
    """Return what HEAD holds; nothing where that is no reference below ``refs`` and no object's name."""
    value = read_file(own / "HEAD", MAX_POINTER_BYTES).rstrip(b"\n")
    if value.startswith(_REF):
        name = value.removeprefix(_REF).strip()
        good = name.startswith(b"refs/") and not _CONTROL.intersection(name)
    else:
        name = value
        good = len(name) in (40, 64) and frozenset(b"0123456789abcdef").issuperset(name)
    return os.fsdecode(name) if good else ""


def _alternates(objects: Path) -> list[Path]:
    """Return the directories that the delegator's repository, and those named there, take objects from."""
    found: list[Path] = []
    todo = [objects]
    while todo and len(found) < MAX_ALTERNATES:
        here = todo.pop()
        for line in read_file(here / "info" / "alternates", MAX_POINTER_BYTES).splitlines():
            path = None if line.startswith(b"#") else _path(line, here)
            if path is not None and path not in found and path != objects and os.path.isdir(path):
                found.append(path)
                todo.append(path)
    return found[:MAX_ALTERNATES]


def read_file(path: Path, limit: int) -> bytes:
    """Return the beginning of a regular file; nothing where there is none."""
    try:
        fd = os.open(path, _OPEN)
    except OSError:
        return b""
    return read_beginning(fd, limit)
