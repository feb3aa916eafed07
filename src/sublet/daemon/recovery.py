"""What the last process left behind, cleaned up and told truthfully before anything new begins (DESIGN 4.10)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

import structlog

from sublet.daemon.journal import Journal
from sublet.daemon.keeper import DelegationKeeper
from sublet.daemon.models import ErrorView
from sublet.daemon.records import AssignmentRecord, DelegationRecord, error_view
from sublet.daemon.staged_tree import Trees
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, AssignmentEvent, AssignmentState, DelegationEvent, advance
from sublet.workspace.carrier import Carrier
from sublet.workspace.model import LeaseUsage

log = structlog.get_logger(__name__)


async def recover(journal: Journal, carriers: Iterable[Carrier], trees: Trees, scratch_root: Path) -> None:
    """Reap stale mounts and unpacked views, scratch directories and resources, and end what was under way.

    Credentials, views and locks lived in the memory of the last process and died with it; what is journalled of them
    is released here. An executor of ours notices by its dead link that the lease is over.
    """
    reaped = [name for carrier in carriers for name in await asyncio.to_thread(carrier.reap)]
    await asyncio.to_thread(shutil.rmtree, scratch_root, ignore_errors=True)
    if reaped:
        log.warning("stale views were removed", views=reaped)
    while assignments := await journal.list_assignments(active=True):
        for assignment in assignments:
            await _fail(assignment, journal)
    while records := await journal.list_settled(settled=False):
        for record in records:
            await _end(record, journal, trees)
    await trees.reap()
    for held in await journal.open_resources():
        await journal.release(held.id)


async def _fail(assignment: AssignmentRecord, journal: Journal) -> None:
    state = advance(ASSIGNMENT_TABLE, assignment.state, AssignmentEvent.FAIL)
    error = ErrorView(
        code=str(ErrorCode.TASK_FAILED),
        message="the executor's daemon stopped unexpectedly",
        hint="Delegate again.",
    )
    changes = {"state": state, "error": error, "updated_at": rfc3339()}
    if assignment.state is AssignmentState.ACTIVE:
        changes["outcome"] = "crashed"
    ended = assignment.model_copy(update=changes)
    await journal.save_assignment(ended, EventKind.ASSIGNMENT_STATE, {"state": str(state), "code": error.code})


async def _end(record: DelegationRecord, journal: Journal, trees: Trees) -> None:
    """End one delegation as what it is, done, expired or interrupted, with the audit of what was done until then."""
    keeper = DelegationKeeper(record, journal)
    await keeper.note(generation=record.generation + 1)
    if record.result is not None:
        await keeper.end(DelegationEvent.DONE)
    else:
        # Where the lease is over by the clock, this is EXPIRE.
        interrupted = SubletError(
            ErrorCode.TASK_FAILED,
            "the delegator's daemon stopped unexpectedly while the delegation was under way; its access died with it",
            "Look at the audit for what was done, then delegate again.",
        )
        await keeper.end(DelegationEvent.FAIL, error=error_view(interrupted))
    news: dict[str, object] = {"condition": None, "settled": True}
    tree = trees.of(record)
    if record.expires_at is not None and record.snapshots:
        # What the executor touched was known to the dead process only, so everything is laid at its door.
        news |= await tree.report(record, LeaseUsage(touched_overflow=True))
    else:
        await tree.drop()
    await keeper.note(**news)
