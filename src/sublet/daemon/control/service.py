"""``DaemonApi``: one method per operation, and before each the question to policy (AWCP 6.6, DESIGN 2)."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from sublet.daemon.api.daemon_models import Check, PruneReport, PruneRequest, ReloadReport, StatusView
from sublet.daemon.api.models import (
    MAX_PAGE,
    MAX_WAIT_SECONDS,
    AssignmentView,
    AuditReport,
    CreateDelegation,
    DelegationView,
    EventPage,
)
from sublet.daemon.api.peer_models import AddPeer, Directory, PairLink, PeerView, TokenView
from sublet.daemon.api.review_models import Applied, ApplyRequest, Discarded, ResultPatch, Review, Undone
from sublet.daemon.gatekeeper import Gatekeeper, looked_up, who
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.lending.lend_roots import LendRoots
from sublet.daemon.lending.lent_resources import asked_for, check_apart, check_staged, revealed, unlocked, widest
from sublet.daemon.peering.pairing import PairingService
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.peering.tokens import TokenStore
from sublet.daemon.results.staged_results import StagedResults
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.pruning import Pruning
from sublet.daemon.storage.records import ResourceRecord
from sublet.daemon.working.executor import Executor
from sublet.policy.engine import Policy
from sublet.policy.model import Action, Resource, Subject
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.ids import AGENT_ID, new_follow_up_id
from sublet.protocol.messages import FollowUp
from sublet.protocol.text import clean_line, clean_name


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """What the service is made of; the composition root makes it once."""

    policy: Policy
    gate: Gatekeeper
    journal: Journal
    delegator: Delegator
    executor: Executor
    peers: PeerStore
    peer_directory: Callable[[], Awaitable[list[PeerView]]]
    pairing: PairingService
    tokens: TokenStore
    lend_roots: LendRoots
    pruning: Pruning
    results: StagedResults
    status: Callable[[], Awaitable[StatusView]]
    doctor: Callable[[], Awaitable[list[Check]]]
    reload: Callable[[], Awaitable[ReloadReport]]
    stop: Callable[[], None]
    node_id: str


class DaemonService:
    """Implements ``DaemonApi``."""

    def __init__(self, parts: ServiceParts) -> None:
        self._parts = parts

    # Delegations

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
        await self._parts.gate.ask(caller, Action.DELEGATION_CREATE, name, **attributes)
        if agent and not AGENT_ID.match(agent):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{clean_line(agent, 80)!r} can't be the name of an agent",
                "Name one that the peer offers, as `sublet peers show` lists them, or none for its default.",
            )
        check_staged(request)
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
        peer = self._parts.peers.require(name)
        ttl = min(request.ttl_seconds, self._parts.policy.limits.max_ttl_seconds)
        return await self._parts.delegator.create(request, caller, lent, peer.address(), agent or None, ttl)

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
        self, cursor: int, caller: Subject, *, delegation_id: str | None = None, timeout: float = 0, limit: int = 100
    ) -> EventPage:
        """``DaemonApi.events_since``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_READ, delegation_id or "*")
        return await self._parts.journal.wait_for_events(
            cursor, delegation_id, timeout=min(timeout, MAX_WAIT_SECONDS), limit=limit
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

        return await self._parts.delegator.extend(delegation_id, seconds, limit, approve)

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
        attributes: dict[str, str | int | bool] = {
            "to": "directory" if request.branch is None else "branch",
            "partial": request.partial,
            "allow_mass_deletion": request.allow_mass_deletion,
        }
        await self._parts.gate.ask(caller, Action.DELEGATION_APPLY, delegation_id, **attributes)
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

    async def prune_resources(self, request: PruneRequest, caller: Subject) -> PruneReport:
        """``DaemonApi.prune_resources``."""
        await self._parts.gate.ask(caller, Action.RESOURCES_PRUNE, "*")
        return await self._parts.pruning.run(request)

    async def list_assignments(self, caller: Subject, *, limit: int = 50, active: bool = False) -> list[AssignmentView]:
        """``DaemonApi.list_assignments``."""
        await self._parts.gate.ask(caller, Action.ASSIGNMENT_READ, "*")
        now = time.time()
        found = await self._parts.journal.list_assignments(limit=min(limit, MAX_PAGE), active=active)
        return [record.view(now) for record in found]

    # Who may do what with whom

    async def directory(self, caller: Subject) -> Directory:
        """``DaemonApi.directory``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_READ, "*")
        peers = await self._parts.peer_directory()
        return Directory(
            node_id=self._parts.node_id,
            peers=[self._usable(peer, caller) for peer in peers],
            lend_roots=sorted({*caller.roots, *self._parts.lend_roots.paths()}),
        )

    async def create_pair_link(self, caller: Subject, *, ttl_seconds: int = 600) -> PairLink:
        """``DaemonApi.create_pair_link``."""
        await self._parts.gate.ask(caller, Action.PEER_PAIR, "*")
        return await self._parts.pairing.create_link(ttl_seconds)

    async def add_peer(self, request: AddPeer, caller: Subject) -> PeerView:
        """``DaemonApi.add_peer``."""
        await self._parts.gate.ask(caller, Action.PEER_PAIR, request.name)
        return await self._parts.pairing.add(request.link, request.name)

    async def list_peers(self, caller: Subject) -> list[PeerView]:
        """``DaemonApi.list_peers``."""
        await self._parts.gate.ask(caller, Action.PEER_MANAGE, "*")
        return [peer.view() for peer in self._parts.peers.list()]

    async def remove_peer(self, name: str, caller: Subject) -> PeerView:
        """``DaemonApi.remove_peer``."""
        await self._parts.gate.ask(caller, Action.PEER_MANAGE, name)
        peer = await self._parts.peers.remove(name)
        why = f"the peer was removed by {who(caller)}"
        await self._parts.delegator.end_peer(peer.name, why)
        await self._parts.executor.end_peer(peer.fingerprint, why)
        return peer.view()

    async def create_token(self, name: str, ttl_seconds: int | None, caller: Subject) -> TokenView:
        """``DaemonApi.create_token``."""
        await self._parts.gate.ask(caller, Action.TOKEN_MANAGE, name)
        return await self._parts.tokens.create(name, ttl_seconds)

    async def list_tokens(self, caller: Subject) -> list[TokenView]:
        """``DaemonApi.list_tokens``."""
        await self._parts.gate.ask(caller, Action.TOKEN_MANAGE, "*")
        return self._parts.tokens.list()

    async def revoke_token(self, name: str, caller: Subject) -> TokenView:
        """``DaemonApi.revoke_token``."""
        await self._parts.gate.ask(caller, Action.TOKEN_MANAGE, name)
        return await self._parts.tokens.revoke(name)

    async def list_lend_roots(self, caller: Subject) -> list[str]:
        """``DaemonApi.list_lend_roots``."""
        await self._parts.gate.ask(caller, Action.LEND_ROOT_MANAGE, "*")
        return self._parts.lend_roots.paths()

    async def add_lend_root(self, path: str, caller: Subject) -> list[str]:
        """``DaemonApi.add_lend_root``."""
        await self._parts.gate.ask(caller, Action.LEND_ROOT_MANAGE, path, path=path)
        real = await looked_up(_real_directory, path)
        await self._parts.gate.ask(caller, Action.LEND_ROOT_MANAGE, real, path=real)
        await self._parts.gate.ask(caller, Action.WORKSPACE_LEND, real, path=real)
        return await self._parts.lend_roots.add(real)

    async def remove_lend_root(self, path: str, caller: Subject) -> list[str]:
        """``DaemonApi.remove_lend_root``."""
        await self._parts.gate.ask(caller, Action.LEND_ROOT_MANAGE, path, path=path)
        return await self._parts.lend_roots.remove(await looked_up(os.path.realpath, path))

    # The daemon itself

    async def status(self, caller: Subject) -> StatusView:
        """``DaemonApi.status``."""
        await self._parts.gate.ask(caller, Action.DAEMON_CONTROL, "status")
        return await self._parts.status()

    async def doctor(self, caller: Subject) -> list[Check]:
        """``DaemonApi.doctor``."""
        await self._parts.gate.ask(caller, Action.DAEMON_CONTROL, "doctor")
        return await self._parts.doctor()

    async def reload(self, caller: Subject) -> ReloadReport:
        """``DaemonApi.reload``."""
        await self._parts.gate.ask(caller, Action.DAEMON_CONTROL, "reload")
        return await self._parts.reload()

    async def shutdown(self, caller: Subject) -> None:
        """``DaemonApi.shutdown``."""
        await self._parts.gate.ask(caller, Action.DAEMON_CONTROL, "stop")
        self._parts.stop()

    async def _may_lend(self, resource: ResourceRecord, request: CreateDelegation, caller: Subject) -> ResourceRecord:
        """Return ``resource`` with its real path, once policy allows to lend that directory in this way.

        Raises:
            SubletError: ``POLICY_DENIED``, or as ``_real_directory``.
        """
        path = await looked_up(_real_directory, resource.path)
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

    def _usable(self, peer: PeerView, caller: Subject) -> PeerView:
        if not peer.usable:
            return peer
        decision = self._parts.policy.decide(caller, Action.DELEGATION_CREATE, Resource(peer.name))
        return peer if decision.allowed else peer.model_copy(update={"usable": False, "why_not": decision.reason})


def _real_directory(path: str) -> str:
    """Return the real path of a directory that is there, and never another one instead (case C01).

    Raises:
        SubletError: ``WORKSPACE_INVALID`` or ``WORKSPACE_NOT_FOUND``.
    """
    if not os.path.isabs(path) or "\0" in path:
        raise SubletError(
            ErrorCode.WORKSPACE_INVALID,
            "the workspace must be an absolute path on the daemon's machine",
            "Give the full path; the daemon never guesses what a relative one is relative to.",
        )
    real, shown = Path(os.path.realpath(path)), clean_name(path)
    try:
        is_directory = stat.S_ISDIR(real.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise SubletError(
            ErrorCode.WORKSPACE_NOT_FOUND,
            f"{shown} does not exist on this machine",
            "Lend from the machine that has the directory: its own daemon must do it.",
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SubletError(
            ErrorCode.WORKSPACE_INVALID, f"{shown} can't be lent: {reason}", "Lend a directory that you can enter."
        ) from None
    if not is_directory:
        raise SubletError(ErrorCode.WORKSPACE_INVALID, f"{shown} is no directory", "Lend the directory that holds it.")
    return str(real)
