"""Finds what an agent's sandbox has to hide or to show read-only in the lent directories (DESIGN 7)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sublet import deadlines
from sublet.policy.path_denies import PathDenies
from sublet.policy.paths import LENT
from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.model import Job

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
    found: list[ClosedPath] = []
    seen = 0
    for root in roots:
        left = [(root, LENT)]
        while left:
            directory, inside = left.pop()
            with os.scandir(directory) as entries:
                for entry in entries:
                    seen += 1
                    path = entry.name if inside == LENT else f"{inside}/{entry.name}"
                    is_directory = entry.is_dir(follow_symlinks=False)
                    where = Path(entry.path)
                    if entry.is_symlink():
                        continue  # what it leads to is closed where it lies
                    if denies.unreadable(path):
                        found.append(ClosedPath(where, "hidden directory" if is_directory else "hidden file"))
                        continue
                    if denies.unwritable(path):
                        found.append(ClosedPath(where, "read-only"))
                    if is_directory and denies.below(path):
                        left.append((where, path))
                    if seen > MAX_LOOKED_AT or len(found) > MAX_CLOSED:
                        raise _unavailable("the rules over paths close too much to be closed one by one")
    return found


def _unavailable(reason: str) -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"no program is started, as nothing would hold it to the rules over paths: {reason}",
        "Deny whole directories instead of single files, or deny shell.exec.",
    )
