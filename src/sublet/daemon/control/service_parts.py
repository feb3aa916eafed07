"""What the services on delegations are made of (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.results.staged_results import StagedResults
from sublet.policy.engine import Policy
from sublet.policy.model import Subject
from sublet.protocol.chain import Chain
from sublet.workspace.sandbox.git_sandbox import GitSandbox


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """What these services are made of; the composition root makes it once."""

    policy: Policy
    gate: Gatekeeper
    delegator: Delegator
    peers: PeerStore
    results: StagedResults
    chain_of: Callable[[Subject], Chain]
    rest_of: Callable[[Chain], float]
    max_depth: Callable[[], int]
    git: GitSandbox = field(default_factory=GitSandbox)


class PartOfService:
    """Base of services made of these."""

    def __init__(self, parts: ServiceParts) -> None:
        self._parts = parts
        self._gate = parts.gate
