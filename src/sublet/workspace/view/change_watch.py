"""What changes in lent directories by other hands than the executor's, found by looking again and again (case C13).

Looking finds what no notification could tell: the same on every file system, and only names that the lease shows.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, Literal

from sublet.protocol.text import clean_name
from sublet.workspace.export import LentDirectory
from sublet.workspace.view.walk import Budget, Directory, open_root, walk

MAX_ENTRIES: Final = 100_000
MAX_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 1.0
SHARE: Final = 20
"""Looking takes at most one part in so many of the time."""

_Seen = dict[tuple[str, bytes], tuple[int, int, int, int]]


Change = Literal["added", "changed", "deleted"]


@dataclass(frozen=True, slots=True)
class Changed:
    """One change. ``path`` is safe to show, and begins with the name of the directory where several are lent."""

    path: str
    change: Change


class ChangeWatch:
    """Compares what is there with what was there before.

    Args:
        directories: what is lent, with the rules of its views.
        touched: returns the paths that the executor has written so far, by the name of the directory; they are left
            out from then on, whoever changes them.
    """

    def __init__(self, directories: Sequence[LentDirectory], touched: Callable[[], Mapping[str, Set[bytes]]]) -> None:
        self._directories = directories
        self._touched = touched
        self._seen: _Seen | None = None
        self.pause = PAUSE_SECONDS
        """How long to wait before the next look, in seconds."""

    def look(self) -> list[Changed]:
        """Return what has changed since the last look; nothing for the first one. Blocks: call it in a thread.

        Raises:
            WalkOverrunError: there is too much to look at.
            OSError: a directory is gone.
        """
        began = time.monotonic()
        now = self._scan()
        self.pause = max(PAUSE_SECONDS, (time.monotonic() - began) * SHARE)
        before, self._seen = self._seen, now
        if before is None:
            return []
        touched = self._touched()
        changed: list[Changed] = []
        for key in sorted({*before, *now}):
            old, new = before.get(key), now.get(key)
            if old == new or _covered(key[1], touched.get(key[0], frozenset())):
                continue
            if old is not None and new is not None and stat.S_ISDIR(old[2]) and stat.S_ISDIR(new[2]):
                continue  # that something in it came or went is told by that itself
            what: Change = "added" if old is None else "deleted" if new is None else "changed"
            changed.append(Changed(self._shown(*key), what))
        return changed

    def _scan(self) -> _Seen:
        seen: _Seen = {}
        budget = Budget(MAX_ENTRIES, MAX_SECONDS)
        for lent in self._directories:
            root = open_root(lent.path)
            try:
                for found in walk(root, lent.rules, budget):
                    if isinstance(found, Directory):
                        for name, entry in found.entries:
                            path = b"/".join((*found.parts, name))
                            seen[lent.name, path] = (entry.st_mtime_ns, entry.st_size, entry.st_mode, entry.st_ino)
            finally:
                os.close(root)
        return seen

    def _shown(self, name: str, path: bytes) -> str:
        return clean_name(path) if len(self._directories) == 1 else f"{name}/{clean_name(path)}"


def _covered(path: bytes, touched: Set[bytes]) -> bool:
    """Tell whether the executor has written the path, or made or moved a directory above it."""
    return bool(touched) and any(path[:end] in touched for end in (*_ends(path), len(path)))


def _ends(path: bytes) -> list[int]:
    return [index for index, byte in enumerate(path) if byte == 0x2F]
