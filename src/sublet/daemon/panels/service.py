"""Serves the operations on panels: begins them whole or not at all, shows them, and takes one result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio

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
    OnePanel,
    PanelApplied,
    PanelChange,
    PanelDiscarded,
    PanelFile,
    PanelReview,
    PanelView,
    WaitForPanel,
)
from sublet.daemon.api.results import ApplyResult
from sublet.daemon.control.delegation_admission import Admitted, DelegationAdmission
from sublet.daemon.governing.gatekeeper import Gatekeeper, who
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.operations.table import serves
from sublet.daemon.panels.runs import PanelRuns
from sublet.daemon.panels.views import PanelViews, compare
from sublet.daemon.results.staged_results import StagedResults
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.panel_parts import PanelPart, PlannedMember
from sublet.policy.decision import Action, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import PANEL_ID, first_member_id, new_delegation_id, new_panel_id
from sublet.protocol.text import clean_line

CANCEL_SECONDS: Final = 10.0
"""How long a cancel waits until all members have stopped."""
_TAKEN: Final = ("applied", "partly_applied")
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
        self._views = PanelViews(parts.journal, parts.delegator, parts.runs)
        self._taking: set[str] = set()
        """Panels of which a result is being applied."""

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
        return await self._views.of(plan)

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
        begun: list[str] = []
        try:
            for number, one in enumerate(admitted):
                # It is recorded and goes on even where its caller is gone before it is told so.
                begun.append(ids[number])
                view = await self._parts.admission.begin(one, caller, plan.model_copy(update={"index": number}))
                if view.delegation_id != ids[number]:  # the same request twice at once: the other one was first
                    begun.pop()
                    break
            records = [await self._parts.journal.load_delegation(one) for one in begun]
        except BaseException:
            # What began is ended by whoever drives it, with what it held.
            await self._end_unfinished(plan, begun)
            raise
        if len(begun) < len(ids):
            await self._end_unfinished(plan, begun)
            known = await self._known(request, caller)
            assert known is not None, "it was found by the same key"
            return known
        runs.begin(records, plan)
        return await self._views.of(plan)

    async def _end_unfinished(self, plan: PanelPart, begun: Sequence[str]) -> None:
        with anyio.CancelScope(shield=True):
            for delegation_id in begun:
                with suppress(SubletError):  # the last one may not have come to be
                    await self._parts.delegator.cancel(delegation_id, "a member of its panel could not be begun")
            await self._parts.runs.let_go(plan.id, begun)

    @serves(GET_PANEL)
    async def get(self, request: OnePanel, caller: Subject) -> PanelView:
        return await self._views.of(await self._plan(request.panel_id, caller, Action.DELEGATION_READ))

    @serves(WAIT_FOR_PANEL)
    async def wait(self, request: WaitForPanel, caller: Subject) -> PanelView:
        plan = await self._plan(request.panel_id, caller, Action.DELEGATION_READ)
        await self._parts.runs.wait(plan.id, request.timeout)
        return await self._views.of(plan)

    @serves(CANCEL_PANEL)
    async def cancel(self, request: OnePanel, caller: Subject) -> PanelView:
        plan = await self._plan(request.panel_id, caller, Action.DELEGATION_CANCEL)
        self._parts.runs.stop(plan.id, f"cancelled by {who(caller)}")
        await self._parts.runs.wait(plan.id, CANCEL_SECONDS)
        return await self._views.of(plan)

    @serves(REVIEW_PANEL)
    async def review(self, request: OnePanel, caller: Subject) -> PanelReview:
        plan = await self._plan(request.panel_id, caller, Action.DELEGATION_REVIEW)
        view = await self._views.of(plan)
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
            truncated = compare(files, member.member, review) or truncated
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
        with self._alone(plan):
            await self._require_none_taken(plan, chosen)
            applied = await self._parts.results.apply(asked, who(caller))
            if applied.change_set.status not in _TAKEN:
                return PanelApplied(panel_id=plan.id, member=request.member, applied=applied)
            others = [one.delegation_id for one in plan.members if one is not chosen]
            discarded, kept = await self._discard(others, caller)
        return PanelApplied(panel_id=plan.id, member=request.member, applied=applied, discarded=discarded, kept=kept)

    @contextmanager
    def _alone(self, plan: PanelPart) -> Iterator[None]:
        """Let one result of a panel be applied at a time.

        Raises:
            SubletError: ``CONFLICT``.
        """
        if plan.id in self._taking:
            raise SubletError(
                LocalCode.CONFLICT, "a result of the panel is being applied now", f"See: sublet review {plan.id}"
            )
        self._taking.add(plan.id)
        try:
            yield
        finally:
            self._taking.discard(plan.id)

    async def _require_none_taken(self, plan: PanelPart, chosen: PlannedMember) -> None:
        """Return if no result but that of ``chosen`` is in the directory: one of a panel is taken.

        Raises:
            SubletError: ``CONFLICT``.
        """
        for number, one in enumerate(plan.members, 1):
            record = await self._parts.journal.load_delegation(one.delegation_id) if one is not chosen else None
            if record is not None and record.change_set is not None and record.change_set.status in _TAKEN:
                raise SubletError(
                    LocalCode.CONFLICT,
                    f"the result of member {number} is applied already, and one of a panel is",
                    f"Take it back first: sublet undo {one.delegation_id}",
                )

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
        if not self._parts.runs.is_over(plan.id):
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
