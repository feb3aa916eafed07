"""Searching the files of a lease for a text, until a bound (DESIGN 4.9)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sublet.protocol.patterns import glob
from sublet.workspace.confined.fs import ConfinedFs

MAX_SEARCHED_FILE_BYTES: Final = 8 << 20
MAX_SEARCHED_BYTES: Final = 256 << 20
MAX_SEARCHED_FILES: Final = 50_000
MAX_DEPTH: Final = 64
MAX_LINE_CHARS: Final = 400

Parts = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """A line that holds what was searched for; ``line`` counts from one, 0 where only the name matched."""

    path: tuple[str, ...]
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Matches:
    """What a search found; ``left_out`` files may not be told of, ``more`` tells that it ended at a bound."""

    found: Sequence[Match]
    files: int
    left_out: int
    more: bool


class Search:
    """One search, until a bound."""

    def __init__(
        self, text: str, name: str, limit: int, *, ignore_case: bool, may: Callable[[tuple[str, ...]], bool]
    ) -> None:
        self._may = may
        self._left_out = 0
        self._wanted = text.lower() if ignore_case else text
        self._fold = ignore_case
        self._name = glob(name or "*")
        self._limit = limit
        self._found: list[Match] = []
        self._files = self._bytes = 0

    def matches(self, *, more: bool) -> Matches:
        """Return what was found."""
        return Matches(self._found, self._files, self._left_out, more)

    def look(self, fs: ConfinedFs, root: str, parts: Parts, size: int) -> bool:
        """Look at one file and tell whether to go on."""
        if not parts or not self._name.match(os.fsdecode(parts[-1])):
            return True
        if self._files + self._left_out >= MAX_SEARCHED_FILES or self._bytes > MAX_SEARCHED_BYTES:
            return False
        path = (root, *map(os.fsdecode, parts))
        # Before it is opened: how many are left out must not tell what is in them.
        if not self._may(path):
            self._left_out += 1
            return True
        self._files += 1
        if not self._wanted:
            self._found.append(Match(path, 0, ""))
            return len(self._found) < self._limit
        if size > MAX_SEARCHED_FILE_BYTES:
            return True
        with suppress(OSError):  # it may be gone, or not for us to read
            file = fs.open_read(parts)
            try:
                data = in_full(file.read, 0, MAX_SEARCHED_FILE_BYTES)
            finally:
                file.close()
            self._bytes += len(data)
            if b"\0" not in data:
                return self._lines(path, data.decode("utf-8", "replace"))
        return True

    def _lines(self, path: tuple[str, ...], text: str) -> bool:
        if self._wanted not in (text.lower() if self._fold else text):
            return True
        for number, line in enumerate(text.split("\n"), 1):
            if self._wanted in (line.lower() if self._fold else line):
                self._found.append(Match(path, number, line[:MAX_LINE_CHARS]))
                if len(self._found) >= self._limit:
                    return False
        return True


def walk(fs: ConfinedFs, top: Parts) -> Iterator[tuple[Parts, int]]:
    """Yield the regular files below a directory with their sizes, in order of their names; links are not followed."""
    pending: list[Parts] = [top]
    while pending:
        parts = pending.pop()
        try:
            directory = fs.open_directory(parts)
        except OSError:
            if parts == top:
                raise
            continue
        try:
            entries = sorted(directory.entries())
        finally:
            directory.close()
        below = []
        for name, status in entries:
            if stat.S_ISREG(status.st_mode):
                yield (*parts, name), status.st_size
            elif stat.S_ISDIR(status.st_mode) and len(parts) < MAX_DEPTH:
                below.append((*parts, name))
        pending += reversed(below)


def in_full(read: Callable[[int, int], bytes], offset: int, size: int) -> bytes:
    """Return ``size`` bytes from ``offset``, fewer only at the end: a single read may bring less."""
    data = bytearray()
    while len(data) < size and (piece := read(min(1 << 20, size - len(data)), offset + len(data))):
        data += piece
    return bytes(data)
