"""Does what the core of an assignment wants done: journals, takes a slot, starts the work, gives back what is held."""

from __future__ import annotations

import asyncio

import anyio
import structlog

from sublet.daemon.ports.talking import TalkingWork
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import AssignmentRecord, error_view
from sublet.daemon.storage.resource_log import NOTHING, ResourceChange
from sublet.daemon.tasks.own_tasks import OwnTasks
from sublet.daemon.times import rfc3339
from sublet.daemon.working.assignment_run import AssignmentRun
from sublet.daemon.working.assignments import Assignments
from sublet.daemon.working.decisions import Decisions
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.daemon.working.refusals import broken, stopping
from sublet.protocol.assignment.events import WorkEnded
from sublet.protocol.assignment.outputs import Begin, Free, Interrupt, Output, Record, Renew, TakeSlot, Tell, WindDown
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.ids import node_id as node_id_of
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, AssignmentState, is_terminal
from sublet.protocol.messages import Start
from sublet.supervisor.slots import Slots

log = structlog.get_logger(__name__)


class Performing:
    """Keeps what is under way on the executor's side, and does to it what its cores want.

    Args:
        journal: where resources are written down.
        assignments: where assignments are.
        slots: counts what may run at once.
        tools: what every assignment works with.
        tasks: runs the work.
    """

    def __init__(
        self, journal: Journal, assignments: Assignments, slots: Slots, tools: ExecutorTools, tasks: OwnTasks
    ) -> None:
        self.under_way: dict[str, Decisions] = {}
        """What waits for its START or runs, by delegations."""
        self.runs: dict[str, AssignmentRun] = {}
        self._journal = journal
        self._assignments = assignments
        self._slots = slots
        self._tools = tools
        self._tasks = tasks

    def check_serving(self) -> None:
        """Refuse what comes while the daemon starts or stops.

        Raises:
            SubletError: ``DECLINED``.
        """
        if not self._tasks.open:
            raise SubletError(
                ErrorCode.DECLINED, "this executor takes no work: it is starting or stopping", "Try again in a moment."
            )

    async def perform(self, decisions: Decisions, output: Output, host: str) -> None:
        """Do an output; ``host`` is where the message came from that it follows from.

        Raises:
            SubletError: it can't be done.
        """
        match output:
            case Record():
                await self._record(decisions, output)
            case TakeSlot():
                self.check_serving()
                decisions.held.slot.enter_context(self._slots.run(decisions.id))
            case Begin(start, deadline):
                self._begin(decisions, start, host, deadline)
            case Renew(start, deadline, ends_at):
                if decisions.run is not None:
                    decisions.run.renew(start, host, deadline, ends_at)
                decisions.renewal()
                record = decisions.journalled
                names = _names_of(record)
                log.info("work is renewed", **names, generation=record.generation, expires_at=record.expires_at)
            case WindDown(error, at) if decisions.run is not None:
                decisions.run.wind_down(error, at)
            case Interrupt() if decisions.run is not None:
                decisions.run.interrupt()
            case Tell(end) if decisions.run is not None:
                decisions.run.finish(end)
            case Free():
                await self.free(decisions)

    async def _record(self, decisions: Decisions, output: Record) -> None:
        """Journal what the core wants durable.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk fails.
        """
        now = output.now
        if decisions.record is None:
            at = rfc3339()
            record = AssignmentRecord(
                id=now.id,
                peer=decisions.peer.name,
                peer_fingerprint=now.owner,
                agent=decisions.held.agent,
                invite=now.invite,
                accept=now.accept,
                mount_point=str(decisions.held.mount_point),
                created_at=at,
                updated_at=at,
            )
            await self._assignments.begin(record)
            decisions.record, self.under_way[now.id] = record, decisions
            return
        over = is_terminal(ASSIGNMENT_TABLE, now.state)
        changes: dict[str, object] = {
            "state": now.state,
            "generation": now.generation,
            "access_mode": now.access_mode,
            "expires_at": now.expires_at,
        }
        held = NOTHING
        if over:
            # One commit for the end and for what is given back with it.
            if await self._removed(decisions):
                held = ResourceChange(gives_back=())
            error = None if output.error is None else error_view(output.error)
            changes |= {"error": error, "outcome": output.reason, "exit_code": output.exit_code}
            ended = str(output.error.code) if output.error is not None else "done"
            log.info("work ends", **_names_of(decisions.record), ended=ended, exit_code=output.exit_code)
        try:
            decisions.record = await self._assignments.change(
                decisions.record, held, transition=output.transition, **changes
            )
        except SubletError as failure:
            log.error("an assignment could not be journalled", delegation_id=now.id, reason=str(failure))
            raise
        decisions.held.given_back = bool(held)
        if now.state is AssignmentState.ACTIVE and output.transition:
            record = decisions.record
            log.info("work begins", **_names_of(record), access_mode=record.access_mode, expires_at=record.expires_at)

    def _begin(self, decisions: Decisions, start: Start, host: str, deadline: float) -> None:
        """Start the work."""
        # The address the peer called from is the only one that is ever dialled for it (DESIGN 9, SSRF).
        run = decisions.run = AssignmentRun(decisions, start, host, deadline, self._tools)
        self.runs[run.id] = run
        work = run.work_of(node_id_of(decisions.peer.public_key))
        if not self._tasks.start("work for a peer", self._work, run, decisions, work):
            decisions.feed_next(WorkEnded(None, stopping(), flushed=False))

    async def free(self, decisions: Decisions) -> None:
        """Free what a delegation holds. What can't be freed stays journalled for the next start."""
        self.under_way.pop(decisions.id, None)
        self.runs.pop(decisions.id, None)
        if (record := self._assignments.under_way.pop(decisions.id, None)) is not None:
            try:
                await self._assignments.forget_oldest(record)
            except SubletError as broken_count:
                log.error("what is kept of a peer could not be counted", peer=record.peer, reason=str(broken_count))
        decisions.held.slot.close()
        self._slots.release(decisions.id)
        if await self._removed(decisions) and not decisions.held.given_back:
            try:
                await self._journal.resources.release_owned(decisions.id)
            except SubletError as error:
                log.error("what was given back could not be journalled", delegation_id=decisions.id, reason=str(error))

    async def _removed(self, decisions: Decisions) -> bool:
        """Remove the reserved place of a view, and tell whether nothing is there any more."""
        held = decisions.held
        if not held.removed:
            try:
                place = held.mount_point
                carrier = self._tools.carriers[held.transport]
                held.removed = place is None or await asyncio.to_thread(carrier.release, place)
            except (OSError, SubletError) as error:
                log.error("a mount point was not freed", delegation_id=decisions.id, reason=str(error))
        return held.removed

    async def _work(self, run: AssignmentRun, decisions: Decisions, work: TalkingWork) -> None:
        # Shielded: a stop of the daemon ends it in order, by ``_stop_all``.
        with anyio.CancelScope(shield=True):
            try:
                try:
                    self._tools.talking.begins(work)
                    try:
                        ended = await run.work()
                    finally:
                        self._tools.talking.ends(work, run.outcome.summary if run.outcome is not None else None)
                except Exception:
                    # Whatever it is, it ends this work alone, and frees what this work holds.
                    log.exception("work for a peer broke", delegation_id=run.id)
                    ended = WorkEnded(None, broken(), flushed=False)
                await decisions.feed(ended)
            finally:
                self.runs.pop(run.id, None)
                run.finish(broken())


def _names_of(record: AssignmentRecord) -> dict[str, str]:
    """Return what the log calls a piece of work by, for the owner of this machine to see whose it was."""
    return {"delegation_id": record.id, "peer": record.peer, "agent": record.agent}
