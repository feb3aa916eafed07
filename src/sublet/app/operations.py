"""Everything that the daemon can be asked: the composition of its services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from sublet.app.parts import Parts
from sublet.daemon.api.daemon import Check, StatusView
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.control.config_service import ConfigService
from sublet.daemon.control.delegation_service import DelegationService
from sublet.daemon.control.history_service import HistoryService
from sublet.daemon.control.lend_root_service import LendRootService
from sublet.daemon.control.peer_service import PeerParts, PeerService
from sublet.daemon.control.service_parts import ServiceParts
from sublet.daemon.control.state_service import StateService
from sublet.daemon.control.token_service import TokenService
from sublet.daemon.health.diagnosis import diagnose
from sublet.daemon.modules.gateway_service import GatewayService
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.peering.peer_directory import PeerDirectory
from sublet.daemon.web_access.service import WebService


def operation_table(
    parts: Parts,
    service_parts: ServiceParts,
    config: DaemonConfig,
    web_page: Callable[[], str | None],
    status: Callable[[], Awaitable[StatusView]],
    stop: Callable[[], None],
) -> OperationTable:
    """Return everything that the daemon can be asked.

    Args:
        parts: of the daemon.
        service_parts: what the services on delegations are made of.
        config: what was configured.
        web_page: returns where the web page is, None where it is switched off.
        status: returns the daemon at a glance.
        stop: asks the daemon to stop.
    """
    return OperationTable(
        DelegationService(service_parts),
        HistoryService(service_parts),
        StateService(parts.gate, status, partial(_doctor, parts, config), parts.reloader.reload, stop),
        PeerService(_peer_parts(parts)),
        TokenService(parts.gate, parts.tokens),
        LendRootService(parts.gate, parts.lend_roots),
        parts.approvals,
        parts.modules.service,
        GatewayService(parts.gate, parts.gateways),
        parts.replays,
        parts.supervising.service,
        *parts.rooms.serving,
        ConfigService(parts.gate, config),
        parts.policy_service,
        WebService(parts.gate, parts.web_logins, web_page),
    )


async def _doctor(parts: Parts, config: DaemonConfig) -> list[Check]:
    apart = parts.rooms.messaging.apart()
    return await diagnose(config.home, running=True, limits=parts.cages.means, apart=apart)


def _peer_parts(parts: Parts) -> PeerParts:
    return PeerParts(
        gate=parts.gate,
        policy=parts.policy,
        peers=parts.peers,
        directory=PeerDirectory(parts.peers, parts.link, parts.rooms.messaging.why_apart),
        pairing=parts.pairing,
        lend_roots=parts.lend_roots,
        delegator=parts.delegator,
        executor=parts.executor,
        node_id=parts.identity.node_id,
    )
