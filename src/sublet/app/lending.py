"""The area of lending: the delegator's side, from what is lent to its audit and its staged results."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.peering import Peering
from sublet.app.rooms import Rooms
from sublet.daemon.control.delegation_admission import DelegationAdmission, DelegationParts
from sublet.daemon.control.delegation_service import DelegationService
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.lending.end_hook import EndHook
from sublet.daemon.lending.lent_access import DelegatorTools
from sublet.daemon.lending.staged_tree import Trees
from sublet.daemon.results.result_store import ResultStore
from sublet.daemon.results.staged_results import StagedResults
from sublet.policy.limits import AdmissionLimits
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.changes.apply import Applier
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.locks import DirectoryLocks
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.reverse import ReverseAcceptor
from sublet.workspace.staging.private_views import Staging


@dataclass(frozen=True, slots=True)
class Lending:
    """Its parts.

    Args:
        data_plane: serves what is lent by SFTP, and takes up connections for work done here.
        reverse: takes up connections where a delegator dials.
        git: runs git on repositories that others may have written.
        auditor: takes snapshots.
        trees: what is lent, and what was changed of it.
        locks: of directories that are lent.
        hook: runs the owner's program at the end of a delegation.
        delegator: runs delegations.
        results: reviews, applies and undoes what was staged.
        admission: says which may begin, and begins them.
        delegations: the operations on them.
    """

    data_plane: DataPlane
    reverse: ReverseAcceptor
    git: GitSandbox
    auditor: Auditor
    trees: Trees
    locks: DirectoryLocks
    hook: EndHook
    delegator: Delegator
    results: StagedResults
    admission: DelegationAdmission
    delegations: DelegationService


def make_lending(ground: Ground, governance: Governance, peering: Peering, rooms: Rooms) -> Lending:
    """Make the delegator and what it works with."""
    config, journal, state_dir, policy = ground.config, ground.journal, ground.state_dir, governance.policy

    def bounds() -> AdmissionLimits:
        return policy.limits.admission

    reverse, git, auditor = ReverseAcceptor(), GitSandbox(confined=not config.unsandboxed), Auditor(state_dir)
    data_plane = DataPlane(ground.identity.ssh_host_key, reverse, ground.scratch_root, git)
    ground.opened.close_by(data_plane.close)
    staging = Staging(state_dir, bounds, ground.aside)
    ground.opened.close_by(staging.close)
    trees = Trees(journal, auditor, staging, ChangeSets(state_dir, auditor, staging, git))
    locks, hook = DirectoryLocks(), EndHook(config.hooks.on_end, notify=config.hooks.notify)
    results = StagedResults(journal, locks, ResultStore(trees.changes, Applier(trees.changes)))
    tools = DelegatorTools(
        journal, data_plane, peering.link, trees, locks, state_dir / "leases", limits=bounds, rooms=rooms.lent
    )
    delegator = Delegator(tools, peering.of_delegation, hook.tell)
    parts = DelegationParts(
        git=git,
        policy=policy,
        gate=governance.gate,
        delegator=delegator,
        peers=peering.peers,
        results=results,
        chain_of=ground.callers.chain,
        rest_of=ground.callers.rest,
        max_depth=config.supervisor.max_depth,
    )
    return Lending(
        data_plane=data_plane,
        reverse=reverse,
        git=git,
        auditor=auditor,
        trees=trees,
        locks=locks,
        hook=hook,
        delegator=delegator,
        results=results,
        admission=DelegationAdmission(parts),
        delegations=DelegationService(parts),
    )
