"""Gives what tells of a daemon at a glance the parts that it looks at."""

from __future__ import annotations

from sublet.app.areas import Areas
from sublet.daemon.health.stalls import Stalls
from sublet.daemon.health.status import Status, StatusParts


def make_status(areas: Areas, stalls: Stalls) -> Status:
    """Return what tells how a daemon is; its start is now.

    Args:
        areas: what it consists of.
        stalls: how long its event loop has stood still.
    """
    ground, agents, upkeep = areas.ground, areas.agents, areas.upkeep

    def files() -> list[str]:
        return [*upkeep.reloader.remarks, *(upkeep.watcher.remarks if upkeep.watcher is not None else [])]

    return Status(
        StatusParts(
            config=ground.config,
            identity=ground.identity,
            journal=ground.journal,
            services=ground.services,
            aside=ground.aside,
            places=ground.places,
            last_ports=ground.last_ports,
            bus_port=ground.bus_port,
            offer=ground.offer,
            peers=areas.peering.peers,
            approver=areas.governance.approver,
            messaging=areas.rooms.messaging,
            homes=areas.peering.homes,
            soundness=upkeep.soundness,
            data_plane=areas.lending.data_plane,
            slots=agents.slots,
            cages=agents.cages,
            confinement=agents.confinement,
            mounts=areas.working.mounts,
            files=files,
            stalls=stalls,
        )
    )
