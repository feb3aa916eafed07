"""Serves the operations on delegations and their results: lending, following, steering, reviewing (AWCP 6.6)."""

from __future__ import annotations

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.delegation_fields import ListNewest, OneDelegation, OneWithPatch
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import (
    AUDIT_DELEGATION,
    CANCEL_DELEGATION,
    CREATE_DELEGATION,
    EXTEND_DELEGATION,
    GET_DELEGATION,
    LIST_DELEGATIONS,
    SAY_MORE,
    WAIT_FOR_END,
    CreateDelegation,
    ExtendDelegation,
    SayMore,
    WaitForEnd,
)
from sublet.daemon.api.results import (
    APPLY_RESULT,
    DISCARD_RESULT,
    EXPORT_RESULT,
    REVIEW_RESULT,
    UNDO_RESULT,
    Applied,
    ApplyResult,
    Discarded,
    ResultPatch,
    Review,
    Undone,
)
from sublet.daemon.control.delegation_admission import DelegationAdmission, DelegationParts
from sublet.daemon.governing.gatekeeper import who
from sublet.daemon.operations.table import serves
from sublet.policy.decision import Action, Subject
from sublet.protocol.ids import new_follow_up_id
from sublet.protocol.messages import FollowUp


class DelegationService:
    """What may be done with delegations."""

    def __init__(self, parts: DelegationParts) -> None:
        self._parts = parts
        self._gate = parts.gate
        self._admission = DelegationAdmission(parts)

    @serves(CREATE_DELEGATION)
    async def create(self, request: CreateDelegation, caller: Subject) -> DelegationView:
        return await self._admission.begin(await self._admission.admit(request, caller), caller)

    @serves(GET_DELEGATION)
    async def get(self, request: OneDelegation, caller: Subject) -> DelegationView:
        return await self._parts.delegator.view(request.delegation_id)

    @serves(WAIT_FOR_END)
    async def wait(self, request: WaitForEnd, caller: Subject) -> DelegationView:
        return await self._parts.delegator.wait(request.delegation_id, request.timeout)

    @serves(LIST_DELEGATIONS)
    async def list_newest(self, request: ListNewest, caller: Subject) -> list[DelegationView]:
        return await self._parts.delegator.list(limit=request.limit, active=request.active, before=request.before)

    @serves(AUDIT_DELEGATION)
    async def audit(self, request: OneWithPatch, caller: Subject) -> AuditReport:
        return await self._parts.delegator.audit(request.delegation_id, patch=request.patch)

    @serves(EXTEND_DELEGATION)
    async def extend(self, request: ExtendDelegation, caller: Subject) -> DelegationView:
        delegation_id = request.delegation_id
        await self._gate.ask(caller, Action.DELEGATION_READ, delegation_id)
        limit = self._parts.policy.limits.max_ttl_seconds

        async def approve(ttl_seconds: int) -> None:
            # The whole time counts, or many small extensions would make a lease that no rule allows.
            await self._gate.ask(caller, Action.DELEGATION_EXTEND, delegation_id, ttl_seconds=ttl_seconds)

        return await self._parts.delegator.extend(delegation_id, request.seconds, limit, approve, self._parts.rest_of)

    @serves(SAY_MORE)
    async def say(self, request: SayMore, caller: Subject) -> DelegationView:
        """Give the agent a further prompt. One that the peer has not taken in ten seconds is sent when it is heard."""
        await self._gate.ask(caller, Action.DELEGATION_READ, request.delegation_id)
        await self._gate.ask(caller, Action.DELEGATION_SAY, request.delegation_id)
        follow_up = FollowUp(id=request.follow_up_id or new_follow_up_id(), prompt=request.prompt)
        return await self._parts.delegator.say(request.delegation_id, follow_up)

    @serves(CANCEL_DELEGATION)
    async def cancel(self, request: OneDelegation, caller: Subject) -> DelegationView:
        return await self._parts.delegator.cancel(request.delegation_id, f"cancelled by {who(caller)}")

    @serves(REVIEW_RESULT)
    async def review(self, request: OneWithPatch, caller: Subject) -> Review:
        return await self._parts.results.review(request.delegation_id, patch=request.patch)

    @serves(EXPORT_RESULT)
    async def patch(self, request: OneDelegation, caller: Subject) -> ResultPatch:
        return await self._parts.results.patch(request.delegation_id)

    @serves(APPLY_RESULT)
    async def apply(self, request: ApplyResult, caller: Subject) -> Applied:
        await self._gate.ask(
            caller,
            Action.DELEGATION_APPLY,
            request.delegation_id,
            to="directory" if request.branch is None else "branch",
            partial=request.partial,
            allow_mass_deletion=request.allow_mass_deletion,
        )
        await self._admission.ask_to_write(caller, request.delegation_id)
        return await self._parts.results.apply(request, who(caller))

    @serves(DISCARD_RESULT)
    async def discard(self, request: OneDelegation, caller: Subject) -> Discarded:
        return await self._parts.results.discard(request.delegation_id, who(caller))

    @serves(UNDO_RESULT)
    async def undo(self, request: OneDelegation, caller: Subject) -> Undone:
        await self._gate.ask(caller, Action.DELEGATION_UNDO, request.delegation_id)
        await self._admission.ask_to_write(caller, request.delegation_id)
        return await self._parts.results.undo(request.delegation_id, who(caller))
