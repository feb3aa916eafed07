"""A lender with two leases of two peers, on loopback: one attacks, one is honest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from attacks.flood import Target
from sublet.workspace.export import LeaseUsage
from sublet.workspace.serving.listener import DataPlane
from support.sftp_client import export


@dataclass
class Scene:
    """A lender with two leases of two peers: one attacks, one is honest."""

    plane: DataPlane
    attacker: Target
    honest: Target

    @property
    def done(self) -> int:
        """How many operations the attacker got."""
        return self.usage.operations

    @property
    def usage(self) -> LeaseUsage:
        """What the attacker's lease did."""
        usage = self.plane.usage(self.attacker.lease)
        assert usage is not None
        return usage


@asynccontextmanager
async def scene(root: Path, **changes: Any) -> AsyncIterator[Scene]:
    """Serve both; ``changes`` are those of the attacker's export."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    await plane.start("127.0.0.1", 0)
    targets = []
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        try:
            for name in ("mallory", "honest"):
                lent = root / name
                lent.mkdir(exist_ok=True)
                mine = changes if name == "mallory" else {}
                plane.open(export(lent, key, lease_id=f"dlg_{name}", peer=name, **mine))
                targets.append(target_of(plane, f"dlg_{name}", key))
            yield Scene(plane, *targets)
        finally:
            serving.cancel()
            plane.close()


def target_of(plane: DataPlane, lease: str, key: asyncssh.SSHKey) -> Target:
    """Return what a holder of the lease has; the rest of a daemon is not there."""
    nowhere = Path("/nonexistent")
    return Target(
        a2a="",
        web=("", 0),
        sftp=plane.address,
        host_key=plane.host_key_line,
        lease=lease,
        key=key,
        bus=None,
        peer_home=nowhere,
        agent_socket=nowhere,
    )
