"""Drives panels to their ends: waits for the members, checks their results, stops the others, and cleans up.

A panel that is not over is journalled as a resource, so that the next process goes on with it after a kill: the
delegations of its members go on by themselves, and a check that was under way is run again, on a fresh copy.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import structlog

from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.panels.checks import CheckEnd, Checks
from sublet.daemon.results.staged_results import StagedResults
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.lent_directories import lent_directories
from sublet.daemon.storage.panel_parts import MemberOutcome, PanelPart
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.storage.resource_log import PANEL
from sublet.daemon.tasks.background import in_background
from sublet.daemon.tasks.own_tasks import OwnTasks
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.ids import first_member_id
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.panels import (
    Checked,
    Ended,
    MemberState,
    Panel,
    PanelRules,
    Step,
    StopCheck,
    Stopped,
    StopWork,
    TimeCame,
)
from sublet.protocol.times import unix_seconds
from sublet.workspace.staging.private_views import Staging

MAX_PANELS: Final = 32
"""Panels that may be under way at once on this daemon."""
KEEP_SECONDS: Final = 0.5
"""How often it is tried to write down how a member ended, while something else is done with its result."""
MAX_KEEP_TRIES: Final = 240

log = structlog.get_logger(__name__)


class _Run:
    """A panel that is not over.

    Args:
        plan: of any member.
        core: says what is to be done.
    """

    def __init__(self, plan: PanelPart, core: Panel) -> None:
        self.plan = plan
        self.core = core
        self.checks: dict[int, anyio.CancelScope] = {}
        self.ended = 0
        self.over = anyio.Event()
        self.changed = anyio.Event()

    def tell(self) -> None:
        """Wake whoever waits for the moment at which the time of agents is used up."""
        self.changed.set()
        self.changed = anyio.Event()


class PanelRuns:
    """See the module; ``serve`` must run for anything to happen.

    Args:
        journal: keeps the records.
        delegator: runs the delegations.
        results: writes down how members ended, in turn with what else is done with a result.
        staging: keeps the views.
        checks: runs checks.
    """

    def __init__(
        self, journal: Journal, delegator: Delegator, results: StagedResults, staging: Staging, checks: Checks
    ) -> None:
        self._journal = journal
        self._delegator = delegator
        self._results = results
        self._staging = staging
        self.checks = checks
        self._runs: dict[str, _Run] = {}
        self._tasks = OwnTasks()
        self._taken_over = anyio.Event()

    async def serve(self) -> None:
        """Drive panels until cancelled; those that are not over are gone on with by the next process."""
        await self._tasks.run(begin=self._take_over)

    async def ready(self) -> None:
        """Wait until it is known which panels an earlier process has left."""
        await self._taken_over.wait()

    def require_room(self) -> None:
        """Return if a further panel can be begun.

        Raises:
            SubletError: ``UNAVAILABLE``.
        """
        if not self._tasks.open or len(self._runs) >= MAX_PANELS:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"no further panel can be started now: at most {MAX_PANELS} are under way at once",
                "Try again when one is over: sublet ls",
            )

    async def hold(self, panel_id: str) -> None:
        """Journal that a panel is about to begin, before its first member is."""
        await self._journal.resources.acquire(panel_id, PANEL, {})

    async def let_go(self, panel_id: str, members: Sequence[str]) -> None:
        """Remove what a panel held, and journal that."""
        for key in (panel_id, *members):
            try:
                await in_background(self._staging.discard, key)
            except (OSError, SubletError) as error:
                log.warning("a copy of a panel could not be removed", key=key, reason=str(error))
        await self._journal.resources.release_owned(panel_id, PANEL)

    def begin(self, records: Sequence[DelegationRecord | None], plan: PanelPart) -> None:
        """Drive a panel, whose members are all recorded, or were by an earlier process."""
        now, known = time.time(), dict[int, tuple[MemberState, float]]()
        began = [unix_seconds(one.created_at) if one is not None else now for one in records]
        for number, one in enumerate(records):
            if one is None or one.panel is None:
                known[number] = (MemberState.NONE, 0.0)
            elif (outcome := one.panel.outcome) is not None:
                known[number] = (MemberState(outcome.state), outcome.seconds)
        rules = PanelRules(plan.check is not None, plan.stop, plan.max_agent_seconds)
        run = self._runs[plan.id] = _Run(plan, Panel(rules, began, known))
        if not self._tasks.start("a panel", self._drive, run, frozenset(known)):
            del self._runs[plan.id]

    def core_of(self, panel_id: str) -> Panel | None:
        """Return a panel that is not over, or None."""
        run = self._runs.get(panel_id)
        return run.core if run is not None else None

    async def wait(self, panel_id: str, timeout: float) -> None:
        """Wait until a panel is over and cleaned up, or so many seconds."""
        if (run := self._runs.get(panel_id)) is not None:
            with anyio.move_on_after(min(timeout, MAX_WAIT_SECONDS)):
                await run.over.wait()

    def stop(self, panel_id: str, why: str) -> None:
        """End a panel: who works is stopped, and what is checked."""
        if (run := self._runs.get(panel_id)) is not None:
            self._do(run, run.core.step(Stopped(why), time.time()))

    # One panel

    async def _take_over(self) -> None:
        for held in await self._journal.resources.open_resources():
            if held.kind != PANEL:
                continue
            first = await self._journal.load_delegation(first_member_id(held.owner))
            if first is None or first.panel is None:  # it was killed before it began
                await self.let_go(held.owner, ())
                continue
            records = [await self._journal.load_delegation(one.delegation_id) for one in first.panel.members]
            self.begin(records, first.panel)
        self._taken_over.set()

    async def _drive(self, run: _Run, known: frozenset[int]) -> None:
        plan = run.plan
        try:
            await self._tell(plan, "running")
            self._do(run, run.core.begin())
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch_time, run)
                for member in range(len(plan.members)):
                    if member in known:
                        self._end_of(run)
                    else:
                        group.start_soon(self._member, run, member)
                await run.over.wait()
                group.cancel_scope.cancel()
            await self.let_go(plan.id, [one.delegation_id for one in plan.members])
            await self._tell(plan, "over", [str(state) for state in run.core.states])
        finally:
            self._runs.pop(plan.id, None)

    def _end_of(self, run: _Run) -> None:
        run.ended += 1
        if run.ended == len(run.plan.members):
            run.over.set()

    async def _tell(self, plan: PanelPart, state: str, members: Sequence[str] = ()) -> None:
        data: dict[str, JsonValue] = {"panel_id": plan.id, "state": state, "to": plan.to, "members": list(members)}
        await self._journal.events.append_event(EventKind.PANEL_STATE, plan.members[0].delegation_id, data)

    def _do(self, run: _Run, steps: Sequence[Step]) -> None:
        """Do what the core wants; a check it wants is run by the task of its member."""
        run.tell()
        for step in steps:
            match step:
                case StopWork(member, why):
                    delegation_id = run.plan.members[member].delegation_id
                    self._tasks.start("the end of a member", self._delegator.cancel, delegation_id, why)
                case StopCheck(member) if (scope := run.checks.get(member)) is not None:
                    scope.cancel()

    async def _watch_time(self, run: _Run) -> None:
        """Stop who works when the time of agents is used up."""
        while True:
            now, changed = time.time(), run.changed
            due = run.core.due(now)
            if due is not None and due <= now:
                self._do(run, run.core.step(TimeCame(), now))
                due, changed = None, run.changed
            with anyio.move_on_after(None if due is None else max(0.05, due - now)):
                await changed.wait()

    async def _member(self, run: _Run, member: int) -> None:
        delegation_id = run.plan.members[member].delegation_id
        has_result = await self._ended(delegation_id)
        run_check = bool(run.core.step(Ended(member, has_result), time.time()))
        run.tell()
        end: CheckEnd | None = None
        if run_check and run.plan.check is not None:
            with anyio.CancelScope() as scope:
                run.checks[member] = scope
                end = await self._checked(run.plan, delegation_id)
            passed = None if end is None else end.exit_code == 0
            self._do(run, run.core.step(Checked(member, passed), time.time()))
        await self._keep(run, member, end)
        self._end_of(run)

    async def _ended(self, delegation_id: str) -> bool:
        """Wait until a delegation is over and settled; tell whether it was done and has a result."""
        while True:
            try:
                view = await self._delegator.wait(delegation_id, MAX_WAIT_SECONDS)
            except SubletError as error:
                if error.code is not LocalCode.NOT_FOUND:
                    raise
                return False
            if view.settled:
                has = view.result is not None and view.result.change_set is not None
                return has and view.state is DelegationState.COMPLETED
            await anyio.sleep(0.1)  # one that is over and left to the next start

    async def _checked(self, plan: PanelPart, delegation_id: str) -> CheckEnd:
        record = await self._journal.require_delegation(delegation_id)
        rules = lent_directories(record)[0].rules
        assert plan.check is not None, "only then there is one"

        def copy(target: Path) -> None:
            self._staging.copy(record.id, target, rules)

        return await self.checks.run(plan.check, plan.check_seconds, copy)

    async def _keep(self, run: _Run, member: int, end: CheckEnd | None) -> None:
        """Write down how a member ended, once nothing else is being done with its result."""
        state = run.core.states[member]
        outcome = MemberOutcome.model_validate(
            {
                "state": str(state),
                "seconds": round(run.core.seconds(member, time.time()), 3),
                "exit_code": end.exit_code if end is not None else None,
                "reason": end.reason if end is not None else "",
                "output": end.output if end is not None else "",
            }
        )

        def noted(record: DelegationRecord) -> DelegationRecord:
            assert record.panel is not None, "it is a member of one"
            return record.model_copy(update={"panel": record.panel.model_copy(update={"outcome": outcome})})

        for _ in range(MAX_KEEP_TRIES):
            try:
                await self._results.note(run.plan.members[member].delegation_id, noted)
                return
            except SubletError as error:
                if error.code is LocalCode.NOT_FOUND:  # pruned meanwhile
                    return
                if error.code not in (LocalCode.CONFLICT, LocalCode.UNAVAILABLE):
                    raise
            await anyio.sleep(KEEP_SECONDS)
