"""Admits delegations: policy is asked for all that a request holds, before anything is begun (AWCP 4.1, DESIGN 4.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.governing.gatekeeper import Gatekeeper, looked_up
from sublet.daemon.governing.lend_roots import real_directory
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.lending.lent_resources import asked_for, check_apart, revealed, unlocked, widest
from sublet.daemon.lending.options import check_options
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.daemon.results.staged_results import StagedResults
from sublet.daemon.storage.panel_parts import PanelPart
from sublet.daemon.storage.records import ResourceRecord
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.engine import Policy
from sublet.protocol.chain import Chain, address, check_call
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import AGENT_ID
from sublet.protocol.text import clean_line
from sublet.workspace.sandbox.git_sandbox import GitSandbox


@dataclass(frozen=True, slots=True)
class DelegationParts:
    """What the service is made of.

    Args:
        policy: whose limits hold.
        gate: asks it.
        delegator: runs delegations.
        peers: to whom may be lent.
        results: of staged delegations.
        chain_of: returns who called until a caller.
        rest_of: returns how many seconds a chain has left.
        max_depth: how many agents may call one another in a row.
        git: runs git on repositories that others may have written.
    """

    policy: Policy
    gate: Gatekeeper
    delegator: Delegator
    peers: PeerStore
    results: StagedResults
    chain_of: Callable[[Subject], Chain]
    rest_of: Callable[[Chain], float]
    max_depth: int
    git: GitSandbox


@dataclass(frozen=True, slots=True)
class Admitted:
    """A delegation that policy has allowed; the fields are the arguments of ``Delegator.create``."""

    request: CreateDelegation
    lent: list[ResourceRecord]
    peer: PeerAddress
    agent: str | None
    ttl_seconds: int
    chain: Chain


class DelegationAdmission:
    """Says whether a delegation may begin, and begins it."""

    def __init__(self, parts: DelegationParts) -> None:
        self._parts = parts
        self._gate = parts.gate

    async def begin(self, admitted: Admitted, caller: Subject, panel: PanelPart | None = None) -> DelegationView:
        """Record a delegation that was admitted: ``Delegator.create``."""
        one = admitted
        return await self._parts.delegator.create(
            one.request, caller, one.lent, one.peer, one.agent, one.ttl_seconds, one.chain, panel
        )

    async def admit(self, request: CreateDelegation, caller: Subject) -> Admitted:
        """Ask policy for a delegation, and look up all that it needs.

        Raises:
            SubletError: it is not allowed, or can't be.
        """
        name, _, agent = request.peer.partition("/")
        resources = asked_for(request)
        check_options(request)
        attributes: dict[str, str | int | bool] = {
            "agent": agent,
            "access_mode": widest(resources),
            "ttl_seconds": request.ttl_seconds,
            **self._quota_asked(request),
        }
        chain = self._parts.chain_of(caller)
        unknown = self._parts.peers.unknown(name, lambda one: self._gate.hides(caller, Action.DELEGATION_CREATE, one))
        await self._gate.ask_for(caller, Action.DELEGATION_CREATE, Resource(name, attributes), unknown)
        peer = self._parts.peers.get(name)
        if peer is None:
            raise unknown
        if agent and not AGENT_ID.match(agent):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{clean_line(agent, 80)!r} can't be the name of an agent",
                "Name one that the peer offers, as `sublet peers show` lists them, or none for its default.",
            )
        check_call(chain, None, max_depth=self._parts.max_depth)
        if request.transport == "git" or request.result_branch is not None:
            what_for = "the transport git" if request.transport == "git" else "a result on a branch"
            await asyncio.to_thread(self._parts.git.check, what_for)
        lent = [await self._may_lend(resource, request, caller) for resource in resources]
        check_apart(lent)
        required = sorted({*request.require_enforced, *self._parts.policy.limits.require_enforced})
        request = request.model_copy(update={"require_enforced": required})
        # Where the agent is not named, the peer will know which one it would be.
        check_call(chain, address(agent, peer.node_id) if agent else None, max_depth=self._parts.max_depth)
        ttl = min(request.ttl_seconds, self._parts.policy.limits.max_ttl_seconds)
        if chain.ttl is not None:
            ttl = max(1, min(ttl, int(chain.ttl)))
        return Admitted(request, lent, peer.address(), agent or None, ttl, chain)

    async def _may_lend(self, resource: ResourceRecord, request: CreateDelegation, caller: Subject) -> ResourceRecord:
        """Return ``resource`` with its real path, once policy allows to lend that directory in this way.

        Raises:
            SubletError: ``POLICY_DENIED``, or as ``real_directory``.
        """
        path = await looked_up(real_directory, resource.path)
        await self._gate.ask(caller, Action.WORKSPACE_LEND, path, path=path, access_mode=resource.access_mode)
        for pattern in revealed(request):
            await self._gate.ask(caller, Action.WORKSPACE_REVEAL, pattern, path=path)
        for pattern in unlocked(request):
            await self._gate.ask(caller, Action.WORKSPACE_UNLOCK, pattern, path=path)
        return resource.model_copy(update={"path": path})

    def _quota_asked(self, request: CreateDelegation) -> dict[str, int]:
        """Return what the executor could add by the request, for rules to bound; policy's limits where it is silent."""
        limits = self._parts.policy.limits.admission
        asked = {name: getattr(request, name) for name in ("max_total_bytes", "max_files", "max_file_bytes")}
        return {name: getattr(limits, name) if value is None else value for name, value in asked.items()}

    async def ask_to_write(self, caller: Subject, delegation_id: str) -> None:
        """Ask whether the caller may lend the directories for writing: only there may it write by a result.

        Raises:
            SubletError: ``POLICY_DENIED``, or ``NOT_FOUND``.
        """
        for workspace in await self._parts.results.workspaces(delegation_id):
            await self._gate.ask(caller, Action.WORKSPACE_LEND, workspace, path=workspace, access_mode="rw")
