"""What the control socket answers beside the operations on delegations: the composition of its areas."""

from __future__ import annotations

from collections.abc import Callable

from sublet.daemon.config import DaemonConfig
from sublet.daemon.control.approval_routes import ApprovalArea
from sublet.daemon.control.capability_routes import CapabilityArea
from sublet.daemon.control.config_service import ConfigService
from sublet.daemon.control.delegation_service import DelegationService
from sublet.daemon.control.delivery_routes import DeliveryArea
from sublet.daemon.control.gateway_routes import GatewayArea
from sublet.daemon.control.history_service import HistoryService
from sublet.daemon.control.replay_routes import ReplayArea
from sublet.daemon.control.room_file_routes import RoomFileArea
from sublet.daemon.control.room_member_routes import RoomMemberArea
from sublet.daemon.control.room_people_routes import RoomPeopleArea
from sublet.daemon.control.room_presence_routes import RoomPresenceArea
from sublet.daemon.control.room_routes import RoomArea
from sublet.daemon.control.room_text_routes import RoomTextArea
from sublet.daemon.control.room_watch_routes import RoomWatchArea
from sublet.daemon.control.service_parts import ServiceParts
from sublet.daemon.control.talk_routes import TalkArea
from sublet.daemon.modules.gateway_service import GatewayService
from sublet.daemon.operations.answers import ControlArea
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.parts import Parts
from sublet.daemon.web_access.service import WebService


def operation_table(
    parts: Parts, service_parts: ServiceParts, config: DaemonConfig, web_page: Callable[[], str | None]
) -> OperationTable:
    """Return everything that the daemon can be asked.

    Args:
        parts: of the daemon.
        service_parts: what the services on delegations are made of.
        config: what was configured.
        web_page: returns where the web page is, None where it is switched off.
    """
    return OperationTable(
        DelegationService(service_parts),
        HistoryService(service_parts),
        parts.supervising.service,
        parts.rooms.marks,
        ConfigService(parts.gate, config),
        parts.policy_service,
        WebService(parts.gate, parts.web_logins, web_page),
    )


def control_areas(parts: Parts) -> list[ControlArea]:
    """Return the areas of the control socket that are no part of the table yet."""
    return [
        ReplayArea(parts.replays),
        RoomArea(parts.rooms.service),
        DeliveryArea(parts.rooms.delivery),
        TalkArea(parts.rooms.talk),
        RoomMemberArea(parts.rooms.members),
        RoomPeopleArea(parts.rooms.people),
        RoomPresenceArea(parts.rooms.presence),
        RoomFileArea(parts.rooms.files),
        RoomTextArea(parts.rooms.texts),
        RoomWatchArea(parts.rooms.talk),
        CapabilityArea(parts.modules.service),
        GatewayArea(GatewayService(parts.gate, parts.gateways)),
        ApprovalArea(parts.approvals),
    ]
