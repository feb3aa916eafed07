"""The area of working: the executor's side, and the transports by which a view comes here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sublet.app.agents import Agents
from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.lending import Lending
from sublet.daemon.net.addresses import is_loopback
from sublet.daemon.rooms.start import Rooms
from sublet.daemon.working.executor import Executor
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.tar_format import TarLimits
from sublet.workspace.bundles.carrier import GitCarrier
from sublet.workspace.carrier import Carrier
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.requirements import require_sandbox, require_transport


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

    def reverse_port(source_host: str) -> int | None:
        """Return the port at which a delegator can dial us: one on loopback is out of reach from elsewhere."""
        host, port = lending.data_plane.address
        return port if is_loopback(source_host) or not is_loopback(host) else None

    def require(transport: str) -> None:
        """Raise ``DEP_MISSING`` where this machine can't do an executor's work with that transport."""
        require_transport(transport)
        if transport == "git":
            lending.git.check()
        if agents.sandbox.enforced:
            require_sandbox()

    def unpacked_limits() -> TarLimits:
        """Return how much a delegator's archive may hold: as much as may be lent from here."""
        bounds = governance.policy.limits.admission
        return TarLimits(2 * bounds.max_files, bounds.max_total_bytes, bounds.max_file_bytes)

    mounts = Mounts(ground.config.mount_root)
    carriers: dict[str, Carrier] = {
        "sshfs": mounts,
        "archive": ArchiveCarrier(ground.state_dir / "work", unpacked_limits),
        "git": GitCarrier(ground.state_dir / "clones", unpacked_limits, lending.git),
    }
    offer = ground.offer
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
            reverse_port=reverse_port,
            confinement=agents.confinement,
            require=require,
            node_id=ground.identity.node_id,
            max_depth=ground.max_depth,
        ),
    )
