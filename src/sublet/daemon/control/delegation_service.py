"""``DaemonApi`` for delegations: lending, following, steering, reviewing (AWCP 6.6, DESIGN 2)."""

from __future__ import annotations

import asyncio

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.models import CreateDelegation, DelegationView, EventPage
from sublet.daemon.api.review_models import Applied, ApplyRequest, Discarded, ResultPatch, Review, Undone
from sublet.daemon.control.service_parts import PartOfService
from sublet.daemon.gatekeeper import looked_up, who
from sublet.daemon.lending.lend_roots import real_directory
from sublet.daemon.lending.lent_resources import asked_for, check_apart, check_staged, revealed, unlocked, widest
from sublet.daemon.operations.asking import operations
from sublet.daemon.storage.records import ResourceRecord
from sublet.policy.model import Action, Resource, Subject
from sublet.protocol.chain import address, check_call
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventFilter, EventKind
from sublet.protocol.ids import AGENT_ID, new_follow_up_id
from sublet.protocol.messages import FollowUp
from sublet.protocol.text import clean_line


@operations
class DelegationService(PartOfService):
    """What may be done with delegations; each operation asks policy first."""

    async def create_delegation(self, request: CreateDelegation, caller: Subject) -> DelegationView:
        """``DaemonApi.create_delegation``."""
        name, _, agent = request.peer.partition("/")
        resources = asked_for(request)
        attributes: dict[str, str | int | bool] = {
            "agent": agent,
            "access_mode": widest(resources),
            "ttl_seconds": request.ttl_seconds,
            **self._quota_asked(request),
        }
        chain = self._parts.chain_of(caller)
        unknown = self._parts.peers.unknown(
            name, lambda one: self._parts.gate.hides(caller, Action.DELEGATION_CREATE, one)
        )
        await self._parts.gate.ask_for(caller, Action.DELEGATION_CREATE, Resource(name, attributes), unknown)
        peer = self._parts.peers.get(name)
        if peer is None:
            raise unknown
        if agent and not AGENT_ID.match(agent):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{clean_line(agent, 80)!r} can't be the name of an agent",
                "Name one that the peer offers, as `sublet peers show` lists them, or none for its default.",
            )
        check_call(chain, None, max_depth=self._parts.max_depth())
        check_staged(request)
        if request.transport == "git" or request.result_branch is not None:
            what_for = "the transport git" if request.transport == "git" else "a result on a branch"
            await asyncio.to_thread(self._parts.git.check, what_for)
        lent = [await self._may_lend(resource, request, caller) for resource in resources]
        check_apart(lent)
        required = sorted({*request.require_enforced, *self._parts.policy.limits.require_enforced})
        request = request.model_copy(update={"require_enforced": required})
        if request.watch and request.result_mode == "staged":
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                "a staged delegation works in a copy, which nobody else changes, so there is nothing to watch",
                "Leave out --watch or --staged.",
            )
        # Where the agent is not named, the peer will know which one it would be.
        check_call(chain, address(agent, peer.node_id) if agent else None, max_depth=self._parts.max_depth())
        ttl = min(request.ttl_seconds, self._parts.policy.limits.max_ttl_seconds)
        if chain.ttl is not None:
            ttl = max(1, min(ttl, int(chain.ttl)))
        return await self._parts.delegator.create(request, caller, lent, peer.address(), agent or None, ttl, chain)

    async def get_status(self, delegation_id: str, caller: Subject) -> DelegationView:
        """``DaemonApi.get_status``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_READ, delegation_id)
        return await self._parts.delegator.view(delegation_id)

    async def wait_for_result(self, delegation_id: str, timeout: float, caller: Subject) -> DelegationView:
        """``DaemonApi.wait_for_result``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_READ, delegation_id)
        return await self._parts.delegator.wait(delegation_id, timeout)

    async def list_delegations(self, caller: Subject, *, limit: int = 50, active: bool = False) -> list[DelegationView]:
        """``DaemonApi.list_delegations``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_READ, "*")
        return await self._parts.delegator.list(limit=limit, active=active)

    async def events_since(
        self,
        cursor: int,
        caller: Subject,
        *,
        delegation_id: str | None = None,
        session_id: str | None = None,
        kind: EventKind | None = None,
        timeout: float = 0,
        limit: int = 100,
    ) -> EventPage:
        """``DaemonApi.events_since``."""
        if session_id is not None:
            await self._parts.gate.ask(caller, Action.SESSION_READ, session_id)
        if session_id is None or delegation_id is not None:
            await self._parts.gate.ask(caller, Action.DELEGATION_READ, delegation_id or "*")
        sessions = True
        if session_id is None and delegation_id is None:
            # Of all that happens, whoever may not read sessions gets the rest.
            seen = await self._parts.gate.decide(caller, Action.SESSION_READ, Resource("*"))
            sessions = seen.allowed
        return await self._parts.journal.wait_for_events(
            cursor,
            timeout=min(timeout, MAX_WAIT_SECONDS),
            limit=limit,
            only=EventFilter(delegation_id=delegation_id, session_id=session_id, kind=kind, sessions=sessions),
        )

    async def get_audit_report(self, delegation_id: str, caller: Subject, *, patch: bool = False) -> AuditReport:
        """``DaemonApi.get_audit_report``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_READ, delegation_id)
        return await self._parts.delegator.audit(delegation_id, patch=patch)

    async def extend_delegation(self, delegation_id: str, seconds: int, caller: Subject) -> DelegationView:
        """``DaemonApi.extend_delegation``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_READ, delegation_id)
        limit = self._parts.policy.limits.max_ttl_seconds

        async def approve(ttl_seconds: int) -> None:
            # The whole time counts, or many small extensions would make a lease that no rule allows.
            await self._parts.gate.ask(caller, Action.DELEGATION_EXTEND, delegation_id, ttl_seconds=ttl_seconds)

        return await self._parts.delegator.extend(delegation_id, seconds, limit, approve, self._parts.rest_of)

    async def say(
        self, delegation_id: str, prompt: str, caller: Subject, *, follow_up_id: str | None = None
    ) -> DelegationView:
        """``DaemonApi.say``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_READ, delegation_id)
        await self._parts.gate.ask(caller, Action.DELEGATION_SAY, delegation_id)
        follow_up = FollowUp(id=follow_up_id or new_follow_up_id(), prompt=prompt)
        return await self._parts.delegator.say(delegation_id, follow_up)

    async def cancel_delegation(self, delegation_id: str, caller: Subject) -> DelegationView:
        """``DaemonApi.cancel_delegation``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_CANCEL, delegation_id)
        return await self._parts.delegator.cancel(delegation_id, f"cancelled by {who(caller)}")

    async def review_delegation(self, delegation_id: str, caller: Subject, *, patch: bool = False) -> Review:
        """``DaemonApi.review_delegation``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_REVIEW, delegation_id)
        return await self._parts.results.review(delegation_id, patch=patch)

    async def result_patch(self, delegation_id: str, caller: Subject) -> ResultPatch:
        """``DaemonApi.result_patch``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_REVIEW, delegation_id)
        return await self._parts.results.patch(delegation_id)

    async def apply_delegation(self, delegation_id: str, request: ApplyRequest, caller: Subject) -> Applied:
        """``DaemonApi.apply_delegation``."""
        await self._parts.gate.ask(
            caller,
            Action.DELEGATION_APPLY,
            delegation_id,
            to="directory" if request.branch is None else "branch",
            partial=request.partial,
            allow_mass_deletion=request.allow_mass_deletion,
        )
        await self._ask_to_write(caller, delegation_id)
        return await self._parts.results.apply(delegation_id, request, who(caller))

    async def discard_delegation(self, delegation_id: str, caller: Subject) -> Discarded:
        """``DaemonApi.discard_delegation``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_DISCARD, delegation_id)
        return await self._parts.results.discard(delegation_id, who(caller))

    async def undo_delegation(self, delegation_id: str, caller: Subject) -> Undone:
        """``DaemonApi.undo_delegation``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_UNDO, delegation_id)
        await self._ask_to_write(caller, delegation_id)
        return await self._parts.results.undo(delegation_id, who(caller))

    async def _may_lend(self, resource: ResourceRecord, request: CreateDelegation, caller: Subject) -> ResourceRecord:
        """Return ``resource`` with its real path, once policy allows to lend that directory in this way.

        Raises:
            SubletError: ``POLICY_DENIED``, or as ``real_directory``.
        """
        path = await looked_up(real_directory, resource.path)
        await self._parts.gate.ask(caller, Action.WORKSPACE_LEND, path, path=path, access_mode=resource.access_mode)
        for pattern in revealed(request):
            await self._parts.gate.ask(caller, Action.WORKSPACE_REVEAL, pattern, path=path)
        for pattern in unlocked(request):
            await self._parts.gate.ask(caller, Action.WORKSPACE_UNLOCK, pattern, path=path)
        return resource.model_copy(update={"path": path})

    def _quota_asked(self, request: CreateDelegation) -> dict[str, int]:
        """Return what the executor could add by the request, for rules to bound; policy's limits where it is silent."""
        limits = self._parts.policy.limits.admission
        asked = {name: getattr(request, name) for name in ("max_total_bytes", "max_files", "max_file_bytes")}
        return {name: getattr(limits, name) if value is None else value for name, value in asked.items()}

    async def _ask_to_write(self, caller: Subject, delegation_id: str) -> None:
        """Ask whether the caller may lend the directories for writing: only there may it write by a result.

        Raises:
            SubletError: ``POLICY_DENIED``, or ``NOT_FOUND``.
        """
        for workspace in await self._parts.results.workspaces(delegation_id):
            await self._parts.gate.ask(caller, Action.WORKSPACE_LEND, workspace, path=workspace, access_mode="rw")
