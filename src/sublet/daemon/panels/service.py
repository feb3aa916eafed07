"""Serves the operations on panels: begins them whole or not at all, shows them, and takes one result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio

from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.api.federation import FoundAgent
from sublet.daemon.api.panels import (
    APPLY_MEMBER,
    CANCEL_PANEL,
    CREATE_PANEL,
    DISCARD_PANEL,
    GET_PANEL,
    REVIEW_PANEL,
    WAIT_FOR_PANEL,
    ApplyMember,
    CreatePanel,
    MemberView,
    OnePanel,
    PanelApplied,
    PanelChange,
    PanelDiscarded,
    PanelFile,
    PanelReview,
    PanelView,
    WaitForPanel,
)
from sublet.daemon.api.results import ApplyResult, Review
from sublet.daemon.control.delegation_admission import Admitted, DelegationAdmission
from sublet.daemon.governing.gatekeeper import Gatekeeper, who
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.operations.table import serves
from sublet.daemon.panels.runs import PanelRuns
from sublet.daemon.results.staged_results import StagedResults
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.panel_parts import PanelPart, PlannedMember
from sublet.daemon.storage.records import DelegationRecord
from sublet.policy.decision import Action, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import PANEL_ID, first_member_id, new_delegation_id, new_panel_id
from sublet.protocol.panels import MemberState
from sublet.protocol.text import clean_line
from sublet.protocol.times import unix_seconds

MAX_COMPARED_FILES: Final = 500
"""Files that a review of a panel lists; the review of one member lists more."""
MAX_SUMMARY_CHARS: Final = 2_000
CANCEL_SECONDS: Final = 10.0
"""How long a cancel waits until all members have stopped."""
_OWN: Final = frozenset(
    {"to", "members", "check", "check_seconds", "stop", "max_agent_seconds", "idempotency_key", "resources"}
)


@dataclass(frozen=True, slots=True)
class PanelParts:
    """What the service is made of.

    Args:
        gate: asks policy.
        journal: keeps the records.
        admission: admits and begins delegations.
        delegator: shows them as they are now.
        results: reviews and applies.
        runs: drives panels.
        find: returns the agents that a text means, as many as wanted.
    """

    gate: Gatekeeper
    journal: Journal
    admission: DelegationAdmission
    delegator: Delegator
    results: StagedResults
    runs: PanelRuns
    find: Callable[[str, int, Subject], list[FoundAgent]]


class PanelService:
    """What may be done with panels."""

    def __init__(self, parts: PanelParts) -> None:
        self._parts = parts
        self._gate = parts.gate

    @serves(CREATE_PANEL)
    async def create(self, request: CreatePanel, caller: Subject) -> PanelView:
        found = self._parts.find(request.to, request.members, caller)
        if request.check is not None:
            self._parts.runs.checks.require()
        planned, admitted = [], []
        for number, one in enumerate(found):
            if one.peer is None:
                raise SubletError(
                    LocalCode.INVALID_ARGUMENT,
                    f"{clean_line(one.address, 200)} can't be a member: {clean_line(one.why, 200)}",
                    "Name agents of other nodes: sublet agents --everywhere",
                )
            asked = {name: getattr(request, name) for name in type(request).model_fields if name not in _OWN}
            # The key is the first member's, which stands for the panel.
            key = request.idempotency_key if number == 0 else None
            wanted = CreateDelegation(**asked, peer=f"{one.peer}/{one.agent_id}", idempotency_key=key)
            admitted.append(await self._parts.admission.admit(wanted, caller))
            planned.append((one, one.peer))
        if request.idempotency_key is not None:
            known = await self._known(request, caller)
            if known is not None:
                return known
        return await self._begin(request, planned, admitted, caller)

    async def _known(self, request: CreatePanel, caller: Subject) -> PanelView | None:
        """Return the panel that the first try of a request made.

        Raises:
            SubletError: ``CONFLICT`` where the key was used for something else.
        """
        key = f"{caller.kind}:{caller.name}", request.idempotency_key or ""
        first = await self._parts.journal.find_delegation(*key)
        if first is None:
            return None
        plan = first.panel
        same = plan is not None and (
            (first.request.prompt, first.request.workspace_dir, len(plan.members))
            == (request.prompt, request.workspace_dir, request.members)
            and (plan.to, plan.check, plan.check_seconds, plan.stop, plan.max_agent_seconds)
            == (request.to, request.check, request.check_seconds, request.stop, request.max_agent_seconds)
        )
        if plan is None or not same:
            raise SubletError(
                LocalCode.CONFLICT,
                f"the idempotency key was used for another request, {first.id}",
                "Use a new key for a new request.",
            )
        return await self._view(plan)

    async def _begin(
        self,
        request: CreatePanel,
        found: Sequence[tuple[FoundAgent, str]],
        admitted: Sequence[Admitted],
        caller: Subject,
    ) -> PanelView:
        """Record all members; where one is refused, those before it are ended, and nothing is left."""
        runs = self._parts.runs
        runs.require_room()
        panel_id = new_panel_id()
        ids = [first_member_id(panel_id), *(new_delegation_id() for _ in found[1:])]
        members = tuple(
            PlannedMember(
                delegation_id=ids[number],
                address=one.address,
                peer=peer,
                agent=one.agent_id,
                why=clean_line(one.why, 300),
            )
            for number, (one, peer) in enumerate(found)
        )
        plan = PanelPart(
            id=panel_id,
            to=request.to,
            index=0,
            members=members,
            check=request.check,
            check_seconds=request.check_seconds,
            stop=request.stop,
            max_agent_seconds=request.max_agent_seconds,
        )
        await runs.hold(panel_id)
        begun: list[DelegationView] = []
        try:
            for number, one in enumerate(admitted):
                part = plan.model_copy(update={"index": number})
                begun.append(await self._parts.admission.begin(one, caller, part))
        except BaseException:
            # What began is ended by whoever drives it, with what it held.
            await self._end_unfinished(plan, [one.delegation_id for one in begun])
            raise
        records = [await self._parts.journal.load_delegation(one) for one in ids]
        runs.begin(records, plan)
        return await self._view(plan)

    async def _end_unfinished(self, plan: PanelPart, begun: Sequence[str]) -> None:
        with anyio.CancelScope(shield=True):
            for delegation_id in begun:
                await self._parts.delegator.cancel(delegation_id, "a member of its panel could not be begun")
            await self._parts.runs.let_go(plan.id, begun)

    @serves(GET_PANEL)
    async def get(self, request: OnePanel, caller: Subject) -> PanelView:
        return await self._view(await self._plan(request.panel_id, caller, Action.DELEGATION_READ))

    @serves(WAIT_FOR_PANEL)
    async def wait(self, request: WaitForPanel, caller: Subject) -> PanelView:
        plan = await self._plan(request.panel_id, caller, Action.DELEGATION_READ)
        await self._parts.runs.wait(plan.id, request.timeout)
        return await self._view(plan)

    @serves(CANCEL_PANEL)
    async def cancel(self, request: OnePanel, caller: Subject) -> PanelView:
        plan = await self._plan(request.panel_id, caller, Action.DELEGATION_CANCEL)
        self._parts.runs.stop(plan.id, f"cancelled by {who(caller)}")
        await self._parts.runs.wait(plan.id, CANCEL_SECONDS)
        return await self._view(plan)

    @serves(REVIEW_PANEL)
    async def review(self, request: OnePanel, caller: Subject) -> PanelReview:
        plan = await self._plan(request.panel_id, caller, Action.DELEGATION_REVIEW)
        view = await self._view(plan)
        files: dict[str, list[PanelChange]] = {}
        unread: list[str] = []
        truncated = False
        for member in view.members:
            if member.change_set is None or member.change_set.status == "discarded":
                continue
            try:
                review = await self._parts.results.review(member.delegation_id, patch=False)
            except SubletError as error:
                unread.append(f"{member.member}: {error.message}")
                continue
            truncated = _compare(files, member.member, review) or truncated
        return PanelReview(
            panel=view,
            files=[PanelFile(path=path, changes=files[path]) for path in sorted(files)],
            truncated=truncated,
            unread=unread,
        )

    @serves(APPLY_MEMBER)
    async def apply(self, request: ApplyMember, caller: Subject) -> PanelApplied:
        plan = await self._plan(request.panel_id, caller, Action.DELEGATION_DISCARD)
        if request.member > len(plan.members):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"the panel has {len(plan.members)} members, so none has the number {request.member}",
                f"See: sublet review {plan.id}",
            )
        self._require_over(plan)
        chosen = plan.members[request.member - 1]
        await self._gate.ask(
            caller,
            Action.DELEGATION_APPLY,
            chosen.delegation_id,
            to="directory",
            partial=request.partial,
            allow_mass_deletion=request.allow_mass_deletion,
        )
        await self._parts.admission.ask_to_write(caller, chosen.delegation_id)
        asked = ApplyResult(
            delegation_id=chosen.delegation_id,
            partial=request.partial,
            allow_mass_deletion=request.allow_mass_deletion,
        )
        applied = await self._parts.results.apply(asked, who(caller))
        if applied.change_set.status not in ("applied", "partly_applied"):
            return PanelApplied(panel_id=plan.id, member=request.member, applied=applied)
        others = [one.delegation_id for one in plan.members if one is not chosen]
        discarded, kept = await self._discard(others, caller)
        return PanelApplied(panel_id=plan.id, member=request.member, applied=applied, discarded=discarded, kept=kept)

    @serves(DISCARD_PANEL)
    async def discard(self, request: OnePanel, caller: Subject) -> PanelDiscarded:
        plan = await self._plan(request.panel_id, caller, Action.DELEGATION_DISCARD)
        self._require_over(plan)
        discarded, kept = await self._discard([one.delegation_id for one in plan.members], caller)
        return PanelDiscarded(panel_id=plan.id, discarded=discarded, kept=kept)

    async def _discard(self, delegations: Sequence[str], caller: Subject) -> tuple[list[str], list[str]]:
        """Drop the results that wait; return whose went, and which did not and why."""
        discarded, kept = list[str](), list[str]()
        for one in delegations:
            record = await self._parts.journal.load_delegation(one)
            if record is None or record.change_set is None or record.change_set.status not in ("pending", "undone"):
                continue
            try:
                await self._parts.results.discard(one, who(caller))
                discarded.append(one)
            except SubletError as error:
                kept.append(f"{one}: {error.message}")
        return discarded, kept

    def _require_over(self, plan: PanelPart) -> None:
        if self._parts.runs.core_of(plan.id) is not None:
            raise SubletError(
                LocalCode.CONFLICT,
                "the panel is not over: others work on, or are checked",
                f"Wait for it: sublet attach {plan.id}. Or stop it: sublet cancel {plan.id}",
            )

    async def _plan(self, panel_id: str, caller: Subject, action: Action) -> PanelPart:
        """Return a panel, once policy allows to do something with the delegation of each member.

        Raises:
            SubletError: ``NOT_FOUND``, or ``POLICY_DENIED``.
        """
        unknown = SubletError(
            LocalCode.NOT_FOUND, f"there is no panel {clean_line(panel_id, 80)}", "See: sublet ls --all"
        )
        await self._parts.runs.ready()
        first = None
        if PANEL_ID.fullmatch(panel_id):
            first = await self._parts.journal.load_delegation(first_member_id(panel_id))
        if first is None or first.panel is None:
            await self._gate.ask(caller, action, panel_id)
            raise unknown
        for one in first.panel.members:
            await self._gate.ask(caller, action, one.delegation_id)
        return first.panel

    async def _view(self, plan: PanelPart) -> PanelView:
        core, now = self._parts.runs.core_of(plan.id), time.time()
        records = [await self._parts.journal.load_delegation(one.delegation_id) for one in plan.members]
        members = [await self._member(number, planned, records[number]) for number, planned in enumerate(plan.members)]
        if core is not None:
            members = [
                one.model_copy(update={"state": core.states[number], "seconds": round(core.seconds(number, now), 3)})
                for number, one in enumerate(members)
            ]
        first = records[0]
        return PanelView(
            panel_id=plan.id,
            state="running" if core is not None else "over",
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

    async def _member(self, number: int, planned: PlannedMember, record: DelegationRecord | None) -> MemberView:
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
        view = await self._parts.delegator.view(record.id)
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
            known |= {"state": MemberState.WORKING, "seconds": max(0.0, round(worked, 3))}
        result = view.result
        return MemberView(
            **known,
            delegation_state=view.state,
            summary=result.final_summary[:MAX_SUMMARY_CHARS] if result is not None else "",
            change_set=result.change_set if result is not None else None,
            error=view.error,
        )


def _compare(files: dict[str, list[PanelChange]], member: int, review: Review) -> bool:
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
