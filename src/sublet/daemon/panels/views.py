"""How panels are shown: each member as it is driven now, or as it was written down how it ended."""

from __future__ import annotations

import time
from typing import Any, Final

from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.panels import MemberView, PanelChange, PanelView
from sublet.daemon.api.results import Review
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.panels.runs import PanelRuns
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.panel_parts import PanelPart, PlannedMember
from sublet.daemon.storage.records import DelegationRecord
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.panels import MemberState
from sublet.protocol.times import unix_seconds

MAX_COMPARED_FILES: Final = 500
"""Files that a review of a panel lists; the review of one member lists more."""
MAX_SUMMARY_CHARS: Final = 2_000


class PanelViews:
    """Shows panels.

    Args:
        journal: keeps the records.
        delegator: shows delegations as they are now.
        runs: drives panels.
    """

    def __init__(self, journal: Journal, delegator: Delegator, runs: PanelRuns) -> None:
        self._journal = journal
        self._delegator = delegator
        self._runs = runs

    async def of(self, plan: PanelPart) -> PanelView:
        """Return a panel as it is now."""
        await self._runs.ready()
        # Before the records, so that what is said to be over is told as it was written down.
        core, over, now = self._runs.core_of(plan.id), self._runs.is_over(plan.id), time.time()
        records = [await self._journal.load_delegation(one.delegation_id) for one in plan.members]
        members = [
            await self._member(number, planned, records[number], over=over)
            for number, planned in enumerate(plan.members)
        ]
        if core is not None:
            members = [
                one.model_copy(update={"state": core.states[number], "seconds": round(core.seconds(number, now), 3)})
                for number, one in enumerate(members)
            ]
        first = records[0]
        return PanelView(
            panel_id=plan.id,
            state="over" if over else "running",
            workspace_dir=first.workspace if first is not None else "",
            description=first.description if first is not None else "",
            to=plan.to,
            check=plan.check,
            check_seconds=plan.check_seconds,
            stop=plan.stop,
            max_agent_seconds=plan.max_agent_seconds,
            agent_seconds=round(sum(one.seconds for one in members), 3),
            created_at=first.created_at if first is not None else "",
            members=members,
        )

    async def _member(
        self, number: int, planned: PlannedMember, record: DelegationRecord | None, *, over: bool
    ) -> MemberView:
        known: dict[str, Any] = {
            "member": number + 1,
            "delegation_id": planned.delegation_id,
            "address": planned.address,
            "peer": planned.peer,
            "agent": planned.agent,
            "why": planned.why,
        }
        if record is None or record.panel is None:
            return MemberView(**known, state=MemberState.NONE)
        view = await self._delegator.view(record.id)
        outcome = record.panel.outcome
        if outcome is not None:
            known |= {
                "state": MemberState(outcome.state),
                "seconds": outcome.seconds,
                "exit_code": outcome.exit_code,
                "check_reason": outcome.reason,
                "check_output": outcome.output,
            }
        else:
            worked = (unix_seconds(record.updated_at) if record.settled else time.time()) - unix_seconds(
                record.created_at
            )
            known |= {"state": _unwritten(record, view, over=over), "seconds": max(0.0, round(worked, 3))}
        result = view.result
        return MemberView(
            **known,
            delegation_state=view.state,
            summary=result.final_summary[:MAX_SUMMARY_CHARS] if result is not None else "",
            change_set=result.change_set if result is not None else None,
            error=view.error,
        )


def _unwritten(record: DelegationRecord, view: DelegationView, *, over: bool) -> MemberState:
    """Return how a member stands of whom it could not be written down how it ended."""
    if not over or not record.settled:
        return MemberState.WORKING
    has = view.result is not None and view.result.change_set is not None and view.state is DelegationState.COMPLETED
    return MemberState.READY if has else MemberState.NONE


def compare(files: dict[str, list[PanelChange]], member: int, review: Review) -> bool:
    """Add what a member did to ``files``; return whether some did not fit."""
    cut = review.truncated
    for one in review.files:
        if one.path not in files and len(files) >= MAX_COMPARED_FILES:
            cut = True
            continue
        files.setdefault(one.path, []).append(
            PanelChange(
                member=member,
                change=one.change,
                lines_added=one.lines_added,
                lines_deleted=one.lines_deleted,
                conflict=one.outcome == "conflict",
            )
        )
    return cut
