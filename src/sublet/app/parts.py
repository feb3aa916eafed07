"""Makes the parts of a daemon from its configuration and its store, and hands each what it needs (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sublet.daemon.approvals.approver import Approver
from sublet.daemon.approvals.call_gate import CallGate
from sublet.daemon.approvals.grant_store import GrantStore
from sublet.daemon.approvals.service import ApprovalService
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.control.callers import Callers
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.governing.policy_service import PolicyService
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.lending.end_hook import EndHook
from sublet.daemon.lending.lend_roots import LendRoots
from sublet.daemon.lending.staged_tree import Trees
from sublet.daemon.modules.gateways import Gateways
from sublet.daemon.modules.start import Modules
from sublet.daemon.peering.identity import Identity
from sublet.daemon.peering.nonces import NonceMemory
from sublet.daemon.peering.pairing import PairingService
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.peering.tokens import TokenStore
from sublet.daemon.peering.whereabouts import Whereabouts
from sublet.daemon.ports.peer_link import PeerLink
from sublet.daemon.reloading.reloader import Reloader
from sublet.daemon.results.staged_results import StagedResults
from sublet.daemon.rooms.start import Rooms
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.pruning import Pruning
from sublet.daemon.supervising.messages import Messages
from sublet.daemon.supervising.offer import Offer
from sublet.daemon.supervising.replay_service import ReplayService
from sublet.daemon.supervising.start import Supervising
from sublet.daemon.web_access.logins import WebLogins
from sublet.daemon.working.executor import Executor
from sublet.daemon.working.onward import OnwardTools
from sublet.disk.set_aside import SetAside
from sublet.policy.engine import Policy
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.confinement import Confinement
from sublet.supervisor.model import Sandbox
from sublet.supervisor.slots import Slots
from sublet.workspace.carrier import Carrier
from sublet.workspace.locks import DirectoryLocks
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.sandbox.cage import Cages
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.serving.listener import DataPlane


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one daemon, made but not serving yet."""

    identity: Identity
    journal: Journal
    policy: Policy
    gate: Gatekeeper
    audit_log: AuditLog
    policy_service: PolicyService
    peers: PeerStore
    tokens: TokenStore
    nonces: NonceMemory
    grants: GrantStore
    approver: Approver
    approvals: ApprovalService
    calls: CallGate
    web_logins: WebLogins
    lend_roots: LendRoots
    offer: Offer
    sandbox: Sandbox
    git: GitSandbox
    hook: EndHook
    reloader: Reloader
    cages: Cages
    confinement: Callable[[AgentConfig], Confinement]
    slots: Slots
    carriers: Mapping[str, Carrier]
    mounts: Mounts
    trees: Trees
    locks: DirectoryLocks
    data_plane: DataPlane
    link: PeerLink
    pairing: PairingService
    whereabouts: Whereabouts
    delegator: Delegator
    executor: Executor
    messages: Messages
    supervising: Supervising
    callers: Callers
    modules: Modules
    onward: OnwardTools
    gateways: Gateways
    replays: ReplayService
    pruning: Pruning
    results: StagedResults
    rooms: Rooms
    scratch_root: Path
    aside: SetAside
