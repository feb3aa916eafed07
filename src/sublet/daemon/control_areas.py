"""What the control socket answers beside the operations on delegations: the composition of its areas."""

from __future__ import annotations

from collections.abc import Callable

from sublet.daemon.config import DaemonConfig
from sublet.daemon.control.approval_routes import ApprovalArea
from sublet.daemon.control.capability_routes import CapabilityArea
from sublet.daemon.control.config_service import ConfigService
from sublet.daemon.control.gateway_routes import GatewayArea
from sublet.daemon.control.replay_routes import ReplayArea
from sublet.daemon.modules.gateway_service import GatewayService
from sublet.daemon.operations.answers import ControlArea
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.parts import Parts
from sublet.daemon.web_access.service import WebService


def operation_table(parts: Parts, config: DaemonConfig, web_page: Callable[[], str | None]) -> OperationTable:
    """Return everything that the daemon can be asked.

    Args:
        parts: of the daemon.
        config: what was configured.
        web_page: returns where the web page is, None where it is switched off.
    """
    return OperationTable(
        parts.supervising.service,
        *parts.rooms.serving,
        ConfigService(parts.gate, config),
        parts.policy_service,
        WebService(parts.gate, parts.web_logins, web_page),
    )


def control_areas(parts: Parts) -> list[ControlArea]:
    """Return the areas of the control socket that are no part of the table yet."""
    return [
        ReplayArea(parts.replays),
        CapabilityArea(parts.modules.service),
        GatewayArea(GatewayService(parts.gate, parts.gateways)),
        ApprovalArea(parts.approvals),
    ]
