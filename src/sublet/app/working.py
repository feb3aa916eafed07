"""The area of working: the executor's side, and the transports by which a view comes here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sublet.app.agents import Agents
from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.lending import Lending
from sublet.app.rooms import Rooms
from sublet.daemon.working.executor import Executor
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.daemon.working.own_means import OwnMeans
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.bundles.carrier import GitCarrier
from sublet.workspace.carrier import Carrier
from sublet.workspace.mount.mounts import Mounts


@dataclass(frozen=True, slots=True)
class Working:
    """Its parts.

    Args:
        mounts: by sshfs.
        carriers: how a view is brought here, by transport.
        executor: does the work.
    """

    mounts: Mounts
    carriers: Mapping[str, Carrier]
    executor: Executor


def make_working(ground: Ground, governance: Governance, rooms: Rooms, lending: Lending, agents: Agents) -> Working:
    """Make the executor and what it works with."""
    policy, offer = governance.policy, ground.offer
    means = OwnMeans(
        lambda: lending.data_plane.address,
        lending.git,
        lambda: policy.limits.admission,
        sandboxed=bool(agents.sandbox.enforced),
    )
    mounts = Mounts(ground.config.mount_root)
    carriers: dict[str, Carrier] = {
        "sshfs": mounts,
        "archive": ArchiveCarrier(ground.state_dir / "work", means.unpacked_limits),
        "git": GitCarrier(ground.state_dir / "clones", means.unpacked_limits, lending.git),
    }
    return Working(
        mounts=mounts,
        carriers=carriers,
        executor=Executor(
            journal=ground.journal,
            gate=governance.gate,
            slots=agents.slots,
            tools=ExecutorTools(
                carriers,
                lending.reverse,
                offer.provider,
                ground.scratch_root,
                governance.gates.of_assignment,
                rooms.work,
            ),
            agents=offer.now,
            max_ttl_seconds=governance.max_ttl_seconds,
            reverse_port=means.reverse_port,
            confinement=agents.confinement,
            require=means.require,
            node_id=ground.identity.node_id,
            max_depth=ground.config.supervisor.max_depth,
        ),
    )
