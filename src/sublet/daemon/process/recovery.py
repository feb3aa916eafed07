"""What the last process left behind, cleaned up and told truthfully before anything new begins (DESIGN 4.10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

from sublet.daemon.lending.keeper import DelegationKeeper
from sublet.daemon.lending.staged_tree import Trees
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import AssignmentRecord, DelegationRecord, error_view
from sublet.daemon.storage.resource_log import NOTHING, ResourceChange
from sublet.daemon.tasks.background import in_background
from sublet.daemon.times import rfc3339
from sublet.daemon.working.decisions import assignment_of, now
from sublet.disk.set_aside import SetAside
from sublet.protocol.assignment import core
from sublet.protocol.assignment.events import Restarted
from sublet.protocol.assignment.outputs import Record
from sublet.protocol.canonical import JsonValue
from sublet.protocol.delegation.events import Failed, Settled, TakenOver
from sublet.protocol.delegation.reasons import interrupted
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.events import EventKind
from sublet.workspace.carrier import Carrier
from sublet.workspace.model import LeaseUsage

log = structlog.get_logger(__name__)


SWEEP_SECONDS: Final = 600.0
MOUNTS: Final = "mounts"
COPIES: Final = ("work", "clones")
"""Where, below the state directory, transports without a mount put the files that an agent works on."""
PROBES: Final = "overlay-probe-*"


async def recover(
    journal: Journal, carriers: Iterable[Carrier], trees: Trees, scratch_root: Path, aside: SetAside
) -> None:
    """Reap stale mounts and unpacked views, scratch directories and resources, and end what was worked on here.

    Credentials, views and locks lived in the memory of the last process and died with it; what is journalled of them
    is released here. What we delegated ourselves is taken over by the delegator once it serves, which takes what it
    needs anew; that peers have to be told of an end stays journalled until they are. Whatever agents and peers have
    left in these places, the start goes on: what can't be removed is set aside.
    """
    await asyncio.to_thread(clear, scratch_root, aside)
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
    await trees.reap()
    for held in await journal.open_resources():
        if held.kind != "remote_task":
            await journal.release(held.id)


def clear(scratch_root: Path, aside: SetAside) -> None:
    """Take all private directories and copies of agents out of the way, and what a killed probe of overlays left.

    Blocks for as long as it takes to rename them; ``SetAside.sweep`` removes them.
    """
    state_dir = scratch_root.parent
    aside.names(state_dir / MOUNTS)
    for path in state_dir.glob(PROBES):
        aside.remove_later(path)
    for root in (scratch_root, *(state_dir / copies for copies in COPIES)):
        for name in aside.names(root):
            aside.remove_later(root / name)


async def keep_swept(aside: SetAside) -> None:
    """Remove what is out of the way, from time to time, until cancelled; nobody waits for it."""
    while True:
        await in_background(aside.sweep)
        await asyncio.sleep(SWEEP_SECONDS)


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


async def end_interrupted(
    record: DelegationRecord, journal: Journal, trees: Trees, recalled: Callable[[], LeaseUsage]
) -> None:
    """End a delegation that can't be gone on with, as its peer is not known any more, or settle what has ended.

    It ends as what it is, done, expired or interrupted, with the audit of what was done until then.

    Args:
        record: not settled yet.
        journal: where it is written.
        trees: know what it served.
        recalled: returns what the lease did, as far as that is remembered.
    """
    keeper = DelegationKeeper(record, journal)
    await keeper.feed(TakenOver())
    if not keeper.over:
        # Where the lease is over by the clock, this is EXPIRE.
        await keeper.feed(Failed(interrupted()))
    news: dict[str, object] = {}
    tree = trees.of(record)
    if record.expires_at is not None and record.snapshots:
        news |= await tree.report(record, await in_background(recalled))
    else:
        await tree.drop()
    await keeper.note(NOTHING, **news)
    await keeper.feed(Settled(told=True), {"condition": None}, held=ResourceChange(gives_back=()))
