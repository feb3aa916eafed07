"""What the last process left behind, cleaned up and told truthfully before anything new begins (DESIGN 4.10)."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import structlog

from sublet.daemon.journal import Journal
from sublet.daemon.keeper import DelegationKeeper
from sublet.daemon.models import ErrorView
from sublet.daemon.records import DelegationRecord, error_view, lease_over
from sublet.daemon.reports import audit_view
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, AssignmentEvent, DelegationEvent, advance
from sublet.workspace.audit import Auditor
from sublet.workspace.mounts import Mounts
from sublet.workspace.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules

log = structlog.get_logger(__name__)


async def recover(journal: Journal, mounts: Mounts, auditor: Auditor, scratch_root: Path) -> None:
    """Reap stale mounts, scratch directories and resources, and end what was under way.

    Credentials, views and locks lived in the memory of the last process and died with it; what is journalled of them
    is released here.
    """
    reaped = await asyncio.to_thread(mounts.reap)
    await asyncio.to_thread(shutil.rmtree, scratch_root, ignore_errors=True)
    if reaped:
        log.warning("stale mounts were removed", mounts=reaped)
    for assignment in await journal.list_assignments(active=True):
        state = advance(ASSIGNMENT_TABLE, assignment.state, AssignmentEvent.FAIL)
        error = ErrorView(
            code=str(ErrorCode.TASK_FAILED),
            message="the executor's daemon stopped unexpectedly",
            hint="Delegate again.",
        )
        ended = assignment.model_copy(update={"state": state, "error": error, "updated_at": rfc3339()})
        await journal.save_assignment(ended, EventKind.ASSIGNMENT_STATE, {"state": str(state), "code": error.code})
    for record in await journal.list_settled(settled=False):
        await _end(record, journal, auditor)
    for held in await journal.open_resources():
        await journal.release(held.id)


async def _end(record: DelegationRecord, journal: Journal, auditor: Auditor) -> None:
    """End one delegation as what it is, expired or interrupted, with the audit of what was done until then."""
    keeper = DelegationKeeper(record, journal)
    if record.overdue(time.time()):
        await keeper.end(DelegationEvent.EXPIRE, error=error_view(lease_over(record.ttl_seconds)))
    else:
        interrupted = SubletError(
            ErrorCode.TASK_FAILED,
            "the delegator's daemon stopped unexpectedly while the delegation was under way; its access died with it",
            "Look at the audit for what was done, then delegate again.",
        )
        await keeper.end(DelegationEvent.FAIL, error=error_view(interrupted))
    if record.snapshot is not None and record.audit is None:
        rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, record.request.reveal)
        try:
            # What the executor touched was known to the dead process only, so everything is laid at its door.
            report = await asyncio.to_thread(
                auditor.result, record.snapshot, Path(record.workspace), rules, frozenset(), True
            )
            await keeper.note(audit=audit_view(report), result_snapshot=report.result)
        except SubletError as error:
            log.warning("no audit could be made", delegation_id=record.id, reason=str(error))
    await keeper.note(condition=None, settled=True)
