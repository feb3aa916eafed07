"""What the daemon makes of rooms, put together: the composition root of this package."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.rooms.addressing import Addresses
from sublet.daemon.rooms.conversation_service import ConversationService
from sublet.daemon.rooms.file_service import RoomFileService
from sublet.daemon.rooms.finding import RoomFinder
from sublet.daemon.rooms.lent_rooms import LentRooms
from sublet.daemon.rooms.mark_service import RoomMarkService
from sublet.daemon.rooms.member_service import RoomMemberService
from sublet.daemon.rooms.message_service import MessageService
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.news_service import NewsService
from sublet.daemon.rooms.people_service import RoomPeopleService
from sublet.daemon.rooms.presence_service import RoomPresenceService
from sublet.daemon.rooms.prune_store import LeaseRooms
from sublet.daemon.rooms.room_service import RoomService
from sublet.daemon.rooms.speaking import Speaking
from sublet.daemon.rooms.text_service import RoomTextService
from sublet.daemon.rooms.work_talk import WorkTalk
from sublet.daemon.storage.journal import Journal
from sublet.tasks import Service


@dataclass(frozen=True, slots=True)
class Rooms:
    """The parts: what serves the operations on rooms, what delegations and agents at work use."""

    messaging: Messaging
    serving: tuple[
        RoomService,
        RoomMemberService,
        MessageService,
        RoomMarkService,
        RoomPeopleService,
        RoomPresenceService,
        RoomFileService,
        RoomTextService,
        ConversationService,
        NewsService,
    ]
    lent: LentRooms
    work: WorkTalk
    over: LeaseRooms

    @property
    def services(self) -> list[Service]:
        """What has to run."""
        return [
            Service("rooms", self.messaging.serve, self.messaging.wanted),
            Service("rooms of delegations", self.lent.serve),
            Service("last words of agents", self.work.serve),
            Service("old rooms", self.over.serve),
        ]


def make_rooms(messaging: Messaging, node_id: str, peers: PeerStore, gate: Gatekeeper, journal: Journal) -> Rooms:
    """Make the parts around ``messaging``; see the services for the arguments."""
    speaking = Speaking(messaging, node_id)
    addresses = Addresses(peers.node_of, lambda node: peers.by_node_id(node) is not None)
    finder = RoomFinder(gate, speaking, addresses)
    lent, work = LentRooms(journal, messaging, node_id), WorkTalk(messaging, node_id)
    return Rooms(
        messaging=messaging,
        serving=(
            RoomService(gate, speaking, finder),
            RoomMemberService(gate, speaking),
            MessageService(gate, speaking),
            RoomMarkService(gate, speaking),
            RoomPeopleService(gate, speaking),
            RoomPresenceService(gate, speaking),
            RoomFileService(gate, speaking),
            RoomTextService(gate, speaking),
            ConversationService(gate, speaking, finder),
            NewsService(gate, speaking, finder),
        ),
        lent=lent,
        work=work,
        over=LeaseRooms(messaging, node_id, lambda: lent.attended() | work.rooms()),
    )
