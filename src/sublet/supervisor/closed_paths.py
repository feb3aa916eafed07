"""Finds what an agent's sandbox has to hide or to show read-only in the lent directories (DESIGN 7)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sublet import deadlines
from sublet.disk.openat2 import DIRECTORY_PATH, choose_opener
from sublet.policy.path_denies import PathDenies
from sublet.policy.paths import LENT
from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.job import Job

MAX_LOOKED_AT: Final = 50_000
"""Entries of the lent directories that are looked at before a program is started."""
MAX_CLOSED: Final = 512
"""Paths that a sandbox closes one by one."""
LOOK_SECONDS: Final = 30.0

How = Literal["hidden directory", "hidden file", "read-only"]


@dataclass(frozen=True, slots=True)
class ClosedPath:
    """A path that a program does not see, or sees and can't change."""

    path: Path
    how: How


async def closed_paths(job: Job) -> Sequence[ClosedPath]:
    """Return what the rules over paths close to the programs of ``job``; nothing where there are none.

    Raises:
        SubletError: ``UNAVAILABLE`` where the lent directories do not answer, or are too large to be looked through.
    """
    denies = job.gate.path_denies() if job.gate is not None else None
    if not denies:
        return ()
    try:
        async with deadlines.timeout(LOOK_SECONDS):
            return await asyncio.to_thread(_closed, [resource.path for resource in job.resources], denies)
    except TimeoutError:
        raise _unavailable("the lent directories do not answer") from None
    except OSError as error:
        raise _unavailable(f"the lent directories can't be looked through: {error.strerror}") from None


def _closed(roots: Sequence[Path], denies: PathDenies) -> list[ClosedPath]:
    looking = _Looking(denies)
    for root in roots:
        held = os.open(root, DIRECTORY_PATH)
        try:
            looking.below(root, held)
        finally:
            os.close(held)
    return looking.found


class _Looking:
    """One walk over lent directories, in which a program at work may put links in the place of directories."""

    def __init__(self, denies: PathDenies) -> None:
        self._denies = denies
        self._open = choose_opener()
        self._seen = 0
        self.found: list[ClosedPath] = []

    def below(self, root: Path, held: int) -> None:
        """Look through ``root``, whose descriptor is ``held``, without following a link."""
        left = [LENT]
        while left:
            inside = left.pop()
            try:
                directory = self._open(held, os.fsencode(inside), os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue  # removed since
            try:
                with os.scandir(directory) as entries:
                    left += [path for entry in entries if (path := self._entered(root, inside, entry)) is not None]
            finally:
                os.close(directory)

    def _entered(self, root: Path, inside: str, entry: os.DirEntry[str]) -> str | None:
        """Close one entry where it has to be, and return its path where it is a directory to look through."""
        self._seen += 1
        if self._seen > MAX_LOOKED_AT or len(self.found) > MAX_CLOSED:
            raise _unavailable("the rules over paths close too much to be closed one by one")
        if entry.is_symlink():
            return None  # what it leads to is closed where it lies
        path = entry.name if inside == LENT else f"{inside}/{entry.name}"
        is_directory = entry.is_dir(follow_symlinks=False)
        if self._denies.unreadable(path):
            self.found.append(ClosedPath(root / path, "hidden directory" if is_directory else "hidden file"))
            return None
        if self._denies.unwritable(path):
            self.found.append(ClosedPath(root / path, "read-only"))
        return path if is_directory and self._denies.below(path) else None


def _unavailable(reason: str) -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"no program is started, as nothing would hold it to the rules over paths: {reason}",
        "Deny whole directories instead of single files, or deny shell.exec.",
    )
