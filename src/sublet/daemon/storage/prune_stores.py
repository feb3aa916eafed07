"""What can be pruned: one small store per kind of thing that ended delegations leave behind (AWCP 6.6).

A new kind of thing that is kept plugs in as one more ``PruneStore`` in the composition root.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.lent_directories import owner_of
from sublet.disk.disk_usage import disk_usage
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.locks import DirectoryLocks

MAX_CANDIDATES = 20_000
"""Of one kind that are looked at in one run; the next run goes on."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that is kept although nothing that runs needs it.

    Args:
        id: what the store knows it by.
        ended_at: since when it is over, in Unix seconds.
        bytes: what it takes.
        serves: ids of the delegations that it belongs to, ended or not. It stays as long as one of them is kept and
            goes with the last; what serves none that is kept goes by its own age.
        pending: whether somebody may still want to use it, so that its delegation is kept longer than others.
        shown: what it is called where people read it; by default its id.
        events: how many events go with it.
    """

    id: str
    ended_at: float
    bytes: int
    serves: frozenset[str] = field(default_factory=frozenset)
    pending: bool = False
    shown: str = ""
    events: int = 0


class PruneStore(Protocol):
    """One kind of thing."""

    name: str
    """What reports call the kind: a plural, such as ``delegations``."""

    async def candidates(self) -> list[Candidate]:
        """Return what could go. Nothing that is under way is among it."""

    async def remove(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """Remove them and return those that went. One that is gone already, or in use again, is no error.

        Being killed halfway leaves nothing that looks whole and is not.
        """


class EndedDelegations:
    """Settled delegations with their events."""

    name = "delegations"

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def candidates(self) -> list[Candidate]:
        """``PruneStore.candidates``."""
        found = await self._journal.forgettable.list_forgettable("delegations", MAX_CANDIDATES)
        return [
            Candidate(one.id, one.ended_at, one.bytes, shown=f"{one.id[:12]} of {one.workspace}", events=one.events)
            for one in found
        ]

    async def remove(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """``PruneStore.remove``."""
        await self._journal.forgettable.forget(delegations=[candidate.id for candidate in chosen])
        return list(chosen)


class EndedAssignments:
    """Work done for others, with its events."""

    name = "assignments"

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def candidates(self) -> list[Candidate]:
        """``PruneStore.candidates``."""
        found = await self._journal.forgettable.list_forgettable("assignments", MAX_CANDIDATES)
        return [Candidate(one.id, one.ended_at, one.bytes, events=one.events) for one in found]

    async def remove(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """``PruneStore.remove``."""
        await self._journal.forgettable.forget(assignments=[candidate.id for candidate in chosen])
        return list(chosen)


class Shadows:
    """Audit repositories. Each serves all delegations of its workspace."""

    name = "shadows"

    def __init__(self, journal: Journal, auditor: Auditor, locks: DirectoryLocks) -> None:
        self._journal = journal
        self._auditor = auditor
        self._locks = locks

    async def candidates(self) -> list[Candidate]:
        """``PruneStore.candidates``."""
        kept = await asyncio.to_thread(self._auditor.kept)
        delegations = await self._journal.forgettable.workspaces()
        return [
            Candidate(
                str(one.workspace),
                one.changed_at,
                one.bytes,
                serves=frozenset(delegations.get(str(one.workspace), ())),
            )
            for one in kept
        ]

    async def remove(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """``PruneStore.remove``."""
        return [candidate for candidate in chosen if await self._forget(Path(candidate.id))]

    async def _forget(self, workspace: Path) -> bool:
        """Remove the snapshots of a workspace, unless a lease of it needs them again."""
        try:
            async with self._locks.acquire([(workspace, "rw")], owner="prune", timeout=0):
                await asyncio.to_thread(self._auditor.forget, workspace)
        except SubletError as error:
            if error.code is not LocalCode.CONFLICT:
                raise
            if any(path == workspace for holder in self._locks.holders() for path, _ in holder.wants):
                return False
            # Only a directory above or below is lent, and that one's snapshots are its own.
            await asyncio.to_thread(self._auditor.forget, workspace)
        return True


class KeptResults:
    """Results that are kept apart, and what their undo needs. They go with their delegations."""

    name = "results"

    def __init__(self, changes: ChangeSets) -> None:
        self._changes = changes

    async def candidates(self) -> list[Candidate]:
        """``PruneStore.candidates``."""
        return await asyncio.to_thread(self._kept)

    async def remove(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """``PruneStore.remove``."""
        for candidate in chosen:
            await asyncio.to_thread(self._changes.discard, candidate.id)
        return list(chosen)

    def _kept(self) -> list[Candidate]:
        found: list[Candidate] = []
        for key in self._changes.all_keys()[:MAX_CANDIDATES]:
            directory = self._changes.directory(key)
            with contextlib.suppress(FileNotFoundError):
                changed, size = directory.stat().st_mtime, disk_usage(directory)
                owner = frozenset([owner_of(key)])
                found.append(Candidate(key, changed, size, owner, self._pending(key), f"result of {key}"))
        return found

    def _pending(self, key: str) -> bool:
        try:
            return self._changes.get(key).status == "pending"
        except SubletError:
            return False  # not sealed yet, or not readable: of no use to anybody
