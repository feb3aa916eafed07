"""What the service behind ``DaemonApi`` is made of (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sublet.daemon.api.daemon_models import Check, ReloadReport, StatusView
from sublet.daemon.api.peer_models import PeerView
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.lending.lend_roots import LendRoots
from sublet.daemon.peering.pairing import PairingService
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.peering.tokens import TokenStore
from sublet.daemon.results.staged_results import StagedResults
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.pruning import Pruning
from sublet.daemon.working.executor import Executor
from sublet.policy.engine import Policy
from sublet.policy.model import Subject
from sublet.protocol.chain import Chain
from sublet.workspace.sandbox.git_sandbox import GitSandbox


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
    chain_of: Callable[[Subject], Chain]
    rest_of: Callable[[Chain], float]
    max_depth: Callable[[], int]
    git: GitSandbox = field(default_factory=GitSandbox)


class PartOfService:
    """Base of services made of these."""

    def __init__(self, parts: ServiceParts) -> None:
        self._parts = parts
        self._gate = parts.gate
