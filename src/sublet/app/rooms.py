"""The area of rooms: messaging, begun when somebody needs it, and what serves it to people, agents and leases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.peering import Peering
from sublet.daemon.rooms.addressing import Addresses
from sublet.daemon.rooms.conversation_service import ConversationService
from sublet.daemon.rooms.device_service import DeviceService
from sublet.daemon.rooms.file_service import RoomFileService
from sublet.daemon.rooms.finding import RoomFinder
from sublet.daemon.rooms.invitation_rules import InvitationRules
from sublet.daemon.rooms.invitation_service import InvitationService
from sublet.daemon.rooms.lent_rooms import LentRooms
from sublet.daemon.rooms.mark_service import RoomMarkService
from sublet.daemon.rooms.member_service import RoomMemberService
from sublet.daemon.rooms.message_service import MessageService
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.news_service import NewsService
from sublet.daemon.rooms.node_carrier import NodeCarrier
from sublet.daemon.rooms.people_service import RoomPeopleService
from sublet.daemon.rooms.presence_service import RoomPresenceService
from sublet.daemon.rooms.prune_store import LeaseRooms
from sublet.daemon.rooms.relay_keeper import RelayKeeper
from sublet.daemon.rooms.relay_service import RelayService
from sublet.daemon.rooms.room_service import RoomService
from sublet.daemon.rooms.speaking import Speaking
from sublet.daemon.rooms.text_service import RoomTextService
from sublet.daemon.rooms.work_talk import WorkTalk
from sublet.tasks import Service


@dataclass(frozen=True, slots=True)
class Rooms:
    """Its parts.

    Args:
        messaging: all of rooms in this daemon.
        serving: the operations on rooms.
        lent: the rooms of delegations.
        work: what agents at work say and ask there.
        over: forgets rooms of delegations that are over.
        nodes: carries what federation says over the bus.
    """

    messaging: Messaging
    serving: tuple[
        RoomService,
        InvitationService,
        RoomMemberService,
        MessageService,
        RoomMarkService,
        RoomPeopleService,
        RoomPresenceService,
        RoomFileService,
        RoomTextService,
        ConversationService,
        NewsService,
        RelayService,
        DeviceService,
    ]
    lent: LentRooms
    work: WorkTalk
    over: LeaseRooms
    nodes: NodeCarrier

    @property
    def services(self) -> list[Service]:
        """What has to run."""
        return [
            Service("rooms", self.messaging.serve, self.messaging.wanted),
            Service("rooms of delegations", self.lent.serve),
            Service("last words of agents", self.work.serve),
            Service("old rooms", self.over.serve),
            Service("bus of federation", self.nodes.serve),
        ]


def make_rooms(ground: Ground, governance: Governance, peering: Peering) -> Rooms:
    """Make the parts; neither Zenoh nor a database is loaded before there is a peer, a room or somebody who asks."""
    node_id, gate, peers = ground.identity.node_id, governance.gate, peering.peers
    settings = ground.config.messaging
    relay = RelayKeeper(
        ground.identity.key,
        ground.state_dir / "relay",
        next(iter(settings.relays), None),
        Path(settings.relay_authority) if settings.relay_authority is not None else None,
        lambda: [peer.node_id for peer in peers.list()],
    )
    peers.listeners.append(relay.wake)
    nodes = NodeCarrier()
    messaging = Messaging(
        ground.identity,
        ground.state_dir,
        ground.bus_port,
        peers,
        peering.link,
        settings,
        agents=ground.offer.ids,
        sockets=Path(ground.config.home.runtime_dir) / "bus",
        services=ground.services,
        consent=InvitationRules(gate, peers, node_id, ground.offer.ids),
        homes=peering.homes,
        set_aside=ground.aside.keep,
        relay=relay,
        nodes=nodes,
    )
    speaking = Speaking(messaging, node_id)
    finder = RoomFinder(gate, speaking, Addresses(peers.node_of, lambda node: peers.by_node_id(node) is not None))
    lent, work = LentRooms(ground.journal, messaging, node_id), WorkTalk(messaging, node_id)
    return Rooms(
        messaging=messaging,
        serving=(
            RoomService(gate, speaking, finder),
            InvitationService(gate, speaking),
            RoomMemberService(gate, speaking),
            MessageService(gate, speaking),
            RoomMarkService(gate, speaking),
            RoomPeopleService(gate, speaking),
            RoomPresenceService(gate, speaking),
            RoomFileService(gate, speaking),
            RoomTextService(gate, speaking),
            ConversationService(gate, speaking, finder),
            NewsService(gate, speaking, finder),
            RelayService(gate, relay, messaging, ground.identity, peers),
            DeviceService(gate, speaking, messaging.device, ground.identity, peers),
        ),
        lent=lent,
        work=work,
        over=LeaseRooms(messaging, node_id, lambda: lent.attended() | work.rooms()),
        nodes=nodes,
    )
