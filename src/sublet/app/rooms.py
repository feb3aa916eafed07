"""The area of rooms: messaging, begun when somebody needs it, and what serves it to people, agents and leases."""

from __future__ import annotations

from pathlib import Path

from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.peering import Peering
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.start import Rooms, make_rooms

__all__ = ["Rooms", "rooms_of"]


def rooms_of(ground: Ground, governance: Governance, peering: Peering) -> Rooms:
    """Return the parts; neither Zenoh nor a database is loaded before there is a peer, a room or somebody who asks."""
    messaging = Messaging(
        ground.identity,
        ground.state_dir,
        ground.bus_port,
        peering.peers,
        peering.link,
        ground.config.messaging,
        agents=ground.offer.ids,
        sockets=Path(ground.config.home.runtime_dir) / "bus",
        services=ground.services,
    )
    return make_rooms(messaging, ground.identity.node_id, peering.peers, governance.gate, ground.journal)
