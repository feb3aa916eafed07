"""Removes what ended delegations left behind, on request and by age and size (AWCP 6.6 ``prune_resources``)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import structlog

from sublet.daemon.api.pruning import PruneItem, PruneReport, PruneRequest
from sublet.daemon.config.retention import Retention
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.prune_stores import Candidate, PruneStore
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import SubletError
from sublet.protocol.text import clean_name

FIRST_SECONDS = 60.0
"""How long after its start the daemon prunes by itself for the first time: a start has better things to do."""
EVERY_SECONDS = 6 * 3600.0
BATCH = 200
MAX_ITEMS_TOLD = 1_000
"""Things that a report names one by one; its sums are complete."""
USUAL: Final = Retention()

log = structlog.get_logger(__name__)


class Pruning:
    """Chooses among what the stores hold, and removes it. What is under way is in no store's candidates.

    Args:
        journal: knows which delegations are kept.
        stores: the kinds of things that are kept, in the order in which they go: records before what belongs to them,
            so that being killed in between leaves something that belongs to nothing and goes the next time.
        retention: what holds where the request does not say, and for the daemon's own pruning.
        clock: Unix seconds.
    """

    def __init__(
        self,
        journal: Journal,
        stores: Sequence[PruneStore],
        retention: Retention = USUAL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._stores = stores
        self._retention = retention
        self._clock = clock
        self._running = asyncio.Lock()

    async def serve(self) -> None:
        """Prune by retention, soon and then at long intervals, until cancelled."""
        await anyio.sleep(FIRST_SECONDS)
        while True:
            retention = self._retention
            request = PruneRequest(older_than_seconds=retention.max_age_seconds, max_bytes=retention.max_bytes)
            if request != PruneRequest():
                try:
                    report = await self.run(request)
                    if report.items:
                        log.info("what was kept long enough is removed", things=len(report.items), bytes=report.bytes)
                except (OSError, SubletError) as error:
                    log.error("pruning failed, and is tried again later", reason=str(error))
            await anyio.sleep(EVERY_SECONDS)

    async def run(self, request: PruneRequest) -> PruneReport:
        """Remove what ``request`` asks for and report what went; or, for a dry run, what would go."""
        async with self._running:
            held = {store.name: await store.candidates() for store in self._stores}
            known = await self._journal.forgettable.delegation_ids()
            held = {name: [_belonging(one, known) for one in found] for name, found in held.items()}
            choice = _Choice(self._clock(), request, self._retention.pending_seconds, held)
            chosen = choice.made()
            gone: list[tuple[str, Candidate]] = []
            for store in self._stores:
                wanted = chosen[store.name]
                if request.dry_run:
                    gone += [(store.name, candidate) for candidate in wanted]
                    continue
                for batch in _batches(wanted):
                    gone += [(store.name, candidate) for candidate in await store.remove(batch)]
            report = _report(request, gone, choice.reasons)
            if request.dry_run or not gone:
                return report
            before, after = await self._journal.forgettable.shrink()
            return report.model_copy(update={"store_bytes_before": before, "store_bytes_after": after})


@dataclass
class _Choice:
    """Which candidates go. The oldest go first; what serves delegations goes with the last of them."""

    now: float
    request: PruneRequest
    pending_seconds: int
    held: dict[str, list[Candidate]]
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def made(self) -> dict[str, list[Candidate]]:
        """Return what goes, store by store."""
        left = sum(candidate.bytes for found in self.held.values() for candidate in found)
        kept_for = {one for _, candidate in self._serving() if self._waits(candidate) for one in candidate.serves}
        serving: dict[str, list[tuple[str, Candidate]]] = {}
        needed: dict[tuple[str, str], set[str]] = {}
        for name, candidate in self._serving():
            needed[name, candidate.id] = set(candidate.serves)
            for one in candidate.serves:
                serving.setdefault(one, []).append((name, candidate))
        for name, candidate in sorted(self._own(), key=lambda own: own[1].ended_at):
            reason = self._reason(candidate, left)
            if reason is None or candidate.id in kept_for or self._waits(candidate):
                continue
            self.reasons[name, candidate.id] = reason
            left -= candidate.bytes
            for other, served in serving.get(candidate.id, ()):
                needed[other, served.id].discard(candidate.id)
                if not needed[other, served.id]:
                    self.reasons[other, served.id] = "no delegation that is kept needs it"
                    left -= served.bytes
        return {
            name: [candidate for candidate in found if (name, candidate.id) in self.reasons]
            for name, found in self.held.items()
        }

    def _serving(self) -> Iterator[tuple[str, Candidate]]:
        return ((name, candidate) for name, found in self.held.items() for candidate in found if candidate.serves)

    def _own(self) -> Iterator[tuple[str, Candidate]]:
        return ((name, candidate) for name, found in self.held.items() for candidate in found if not candidate.serves)

    def _waits(self, candidate: Candidate) -> bool:
        young = self.now - candidate.ended_at < self.pending_seconds
        return candidate.pending and young and not self.request.pending

    def _reason(self, candidate: Candidate, left: int) -> str | None:
        limit, room = self.request.older_than_seconds, self.request.max_bytes
        if limit is None and room is None:
            return "it is over"
        if limit is not None and self.now - candidate.ended_at >= limit:
            return f"it ended more than {_span(limit)} ago"
        if room is not None and left > room:
            return f"more than {room:,} bytes were kept"
        return None


def _report(
    request: PruneRequest, gone: Sequence[tuple[str, Candidate]], reasons: dict[tuple[str, str], str]
) -> PruneReport:
    counts: dict[str, int] = {}
    for name, _ in gone:
        counts[name] = counts.get(name, 0) + 1
    return PruneReport(
        dry_run=request.dry_run,
        counts=counts,
        bytes=sum(candidate.bytes for _, candidate in gone),
        events=sum(candidate.events for _, candidate in gone),
        items=[
            PruneItem(
                kind=name,
                id=clean_name(candidate.id),
                what=clean_name(candidate.shown or candidate.id),
                ended_at=rfc3339(candidate.ended_at),
                bytes=candidate.bytes,
                reason=reasons[name, candidate.id],
            )
            for name, candidate in gone[:MAX_ITEMS_TOLD]
        ],
        truncated=len(gone) > MAX_ITEMS_TOLD,
    )


def _belonging(candidate: Candidate, known: frozenset[str]) -> Candidate:
    """Return ``candidate`` without what it belonged to and is forgotten already."""
    return replace(candidate, serves=candidate.serves & known) if candidate.serves - known else candidate


def _batches(candidates: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    for start in range(0, len(candidates), BATCH):
        yield candidates[start : start + BATCH]


def _span(seconds: int) -> str:
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % unit == 0:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
