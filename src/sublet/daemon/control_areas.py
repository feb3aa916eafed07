"""What the control socket answers beside the operations on delegations: the composition of its areas."""

from __future__ import annotations

from collections.abc import Callable

from sublet.daemon.config import DaemonConfig
from sublet.daemon.control.answers import ControlArea
from sublet.daemon.control.approval_routes import ApprovalArea
from sublet.daemon.control.capability_routes import CapabilityArea
from sublet.daemon.control.config_routes import ConfigArea
from sublet.daemon.control.config_service import ConfigService
from sublet.daemon.control.delivery_routes import DeliveryArea
from sublet.daemon.control.gateway_routes import GatewayArea
from sublet.daemon.control.policy_routes import PolicyArea
from sublet.daemon.control.replay_routes import ReplayArea
from sublet.daemon.control.room_file_routes import RoomFileArea
from sublet.daemon.control.room_mark_routes import RoomMarkArea
from sublet.daemon.control.room_member_routes import RoomMemberArea
from sublet.daemon.control.room_people_routes import RoomPeopleArea
from sublet.daemon.control.room_presence_routes import RoomPresenceArea
from sublet.daemon.control.room_routes import RoomArea
from sublet.daemon.control.room_text_routes import RoomTextArea
from sublet.daemon.control.room_watch_routes import RoomWatchArea
from sublet.daemon.control.supervisor_routes import SupervisorArea
from sublet.daemon.control.talk_routes import TalkArea
from sublet.daemon.control.web_routes import WebArea
from sublet.daemon.modules.gateway_service import GatewayService
from sublet.daemon.parts import Parts
from sublet.daemon.web_access.service import WebService


def control_areas(parts: Parts, config: DaemonConfig, web_page: Callable[[], str | None]) -> list[ControlArea]:
    """Return the areas of the control socket.

    Args:
        parts: of the daemon.
        config: what was configured.
        web_page: returns where the web page is, None where it is switched off.
    """
    return [
        SupervisorArea(parts.supervising.service),
        ReplayArea(parts.replays),
        RoomArea(parts.rooms.service),
        DeliveryArea(parts.rooms.delivery),
        TalkArea(parts.rooms.talk),
        RoomMemberArea(parts.rooms.members),
        RoomMarkArea(parts.rooms.marks),
        RoomPeopleArea(parts.rooms.people),
        RoomPresenceArea(parts.rooms.presence),
        RoomFileArea(parts.rooms.files),
        RoomTextArea(parts.rooms.texts),
        RoomWatchArea(parts.rooms.talk),
        ConfigArea(ConfigService(parts.gate, config)),
        PolicyArea(parts.policy_service),
        CapabilityArea(parts.modules.service),
        GatewayArea(GatewayService(parts.gate, parts.gateways)),
        ApprovalArea(parts.approvals),
        WebArea(WebService(parts.gate, parts.web_logins, web_page)),
    ]
