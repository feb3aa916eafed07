"""The area of governance: what may be done, who is asked, and what stands before each tool (DESIGN 7)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from sublet.app.ground import Ground
from sublet.daemon.approvals.approver import Approver
from sublet.daemon.approvals.call_gate import CallGate
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.approvals.gates import Gates
from sublet.daemon.approvals.grant_store import GrantStore
from sublet.daemon.approvals.questions import Questions
from sublet.daemon.approvals.service import ApprovalParts, ApprovalService
from sublet.daemon.governing.agent_calls import AgentCalls
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.governing.lend_roots import LendRoots
from sublet.daemon.governing.policy_service import PolicyService
from sublet.daemon.peering.nonces import NonceMemory
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected


@dataclass(frozen=True, slots=True)
class Governance:
    """Its parts.

    Args:
        policy: decides.
        policy_file: where its rules are.
        gate: asks it before every operation.
        lend_roots: directories that a person has allowed to lend.
        nonces: remember which signed statements were seen.
        grants: what a person has allowed for a time.
        approver: whose signature counts.
        gates: make what stands before the tools of a run.
        calls: stands before what a host asks a person for.
        approvals: the operations on questions and grants.
        rules: the operations on policy.
        agent_calls: tells which tools an agent is told of.
    """

    policy: Policy
    policy_file: Path
    gate: Gatekeeper
    lend_roots: LendRoots
    nonces: NonceMemory
    grants: GrantStore
    approver: Approver
    gates: Gates
    calls: CallGate
    approvals: ApprovalService
    rules: PolicyService
    agent_calls: AgentCalls

    def max_ttl_seconds(self) -> int:
        """Return how long a lease may be."""
        return self.policy.limits.max_ttl_seconds


async def make_governance(ground: Ground) -> Governance:
    """Load the policy, and make what asks it.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a policy that can't be used.
    """
    journal, node_id = ground.journal, ground.identity.node_id
    policy_file = ground.config.policy_file or ground.config_dir / "policy.json"
    policy = await asyncio.to_thread(Policy.load, policy_file, Protected(Path.home(), ground.own_dirs))
    lend_roots = await LendRoots.load(journal)
    gate = Gatekeeper(policy, journal, lend_roots.paths, ground.audit_log)
    nonces = await NonceMemory.load(ground.store)
    grants = GrantStore(journal)
    questions = Questions(journal, grants)
    await questions.set_torn_aside()
    approver = await Approver.load(journal, grants, node_id, nonces)
    parts = GateParts(gate, journal, grants, questions, approver)
    gates = Gates(parts, ground.offer.now)
    return Governance(
        policy=policy,
        policy_file=policy_file,
        gate=gate,
        lend_roots=lend_roots,
        nonces=nonces,
        grants=grants,
        approver=approver,
        gates=gates,
        calls=CallGate(parts),
        approvals=ApprovalService(
            ApprovalParts(gate, approver, grants, questions, node_id, gates.nests, gates.subject_of)
        ),
        rules=PolicyService(gate, policy, ground.audit_log, ground.offer.role_of, lend_roots.paths),
        agent_calls=AgentCalls(gate, ground.offer.role_of),
    )
