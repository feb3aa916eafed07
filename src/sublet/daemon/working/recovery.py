"""What the last process was working on for others: its views are removed, and its assignments end (DESIGN 4.10)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import AssignmentRecord, error_view
from sublet.daemon.times import rfc3339
from sublet.daemon.working.decisions import assignment_of, now
from sublet.protocol.assignment import core
from sublet.protocol.assignment.events import Restarted
from sublet.protocol.assignment.outputs import Record
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.events import EventKind
from sublet.workspace.carrier import Carrier

log = structlog.get_logger(__name__)


async def end_assignments(journal: Journal, carriers: Iterable[Carrier]) -> None:
    """Reap stale mounts and unpacked views, and end what was worked on here.

    Whatever agents and peers have left in these places, the start goes on.
    """
    reaped = []
    for carrier in carriers:
        try:
            reaped += await asyncio.to_thread(carrier.reap)
        except (OSError, SubletError) as error:
            log.warning("stale views were not removed", reason=str(error))
    if reaped:
        log.warning("stale views were removed", views=reaped)
    while assignments := await journal.list_assignments(active=True):
        for assignment in assignments:
            await _fail(assignment, journal)


async def _fail(assignment: AssignmentRecord, journal: Journal) -> None:
    error = SubletError(ErrorCode.TASK_FAILED, "the executor's daemon stopped unexpectedly", "Delegate again.")
    _, outputs = core.step(assignment_of(assignment), Restarted(error), now())
    for output in outputs:
        assert isinstance(output, Record)
        changes = {
            "state": output.now.state,
            "error": error_view(error),
            "outcome": output.reason,
            "updated_at": rfc3339(),
        }
        ended = assignment.model_copy(update=changes)
        data: dict[str, JsonValue] = {"state": str(ended.state), "code": str(error.code)}
        await journal.save_assignment(ended, EventKind.ASSIGNMENT_STATE, data)
