"""Everything that the daemon can be asked: the services of all areas in one table."""

from __future__ import annotations

from functools import partial

from sublet.app.areas import Areas
from sublet.app.stores import FACE_STORES
from sublet.daemon.api.daemon import Check
from sublet.daemon.control.config_service import ConfigService
from sublet.daemon.control.event_service import EventService
from sublet.daemon.control.peer_service import PeerParts, PeerService
from sublet.daemon.control.prune_service import PruneService
from sublet.daemon.control.state_service import StateService
from sublet.daemon.control.token_service import TokenService
from sublet.daemon.governing.lend_root_service import LendRootService
from sublet.daemon.health.diagnosis import diagnose
from sublet.daemon.health.status import Status
from sublet.daemon.modules.gateway_service import GatewayService
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.peering.peer_directory import PeerDirectory
from sublet.daemon.web_access.logins import WebLogins
from sublet.daemon.web_access.service import WebService
from sublet.daemon.working.assignment_service import AssignmentService


def operation_table(areas: Areas, status: Status, web_logins: WebLogins) -> OperationTable:
    """Return everything that the daemon can be asked.

    Args:
        areas: what serves it.
        status: the daemon at a glance.
        web_logins: makes links that log in on the web page.
    """
    ground, gate = areas.ground, areas.governance.gate
    doctor, reload = partial(_doctor, areas), areas.upkeep.reloader.reload
    return OperationTable(
        areas.lending.delegations,
        EventService(gate, ground.journal.events),
        AssignmentService(gate, ground.journal, areas.working.executor.stop_here),
        PruneService(gate, areas.upkeep.pruning),
        StateService(gate, status.view, doctor, reload, ground.stop.ask),
        PeerService(_peer_parts(areas)),
        TokenService(gate, areas.peering.tokens),
        LendRootService(gate, areas.governance.lend_roots),
        areas.governance.approvals,
        areas.offices.service,
        areas.agents.capabilities.service,
        GatewayService(gate, areas.agents.gateways),
        areas.agents.replays,
        areas.agents.supervising.service,
        *areas.rooms.serving,
        areas.federation.service,
        areas.panels.service,
        ConfigService(gate, ground.config),
        areas.governance.rules,
        WebService(gate, web_logins, ground.places.web_page),
    )


async def _doctor(areas: Areas) -> list[Check]:
    ground, messaging = areas.ground, areas.rooms.messaging
    return await diagnose(
        ground.config.home,
        FACE_STORES,
        running=True,
        limits=areas.agents.cages.means,
        apart=messaging.buses.apart(),
        clocks=messaging.clocks(),
        bus=messaging.why_not(),
        agents=ground.offer.now(),
    )


def _peer_parts(areas: Areas) -> PeerParts:
    peering, governance = areas.peering, areas.governance
    return PeerParts(
        gate=governance.gate,
        peers=peering.peers,
        directory=PeerDirectory(
            peering.peers, peering.link, areas.rooms.messaging.buses.why_apart, areas.rooms.messaging.why_other_clock
        ),
        pairing=peering.pairing,
        lend_roots=governance.lend_roots,
        declared=areas.lending.delegator.declared,
        delegator=areas.lending.delegator,
        executor=areas.working.executor,
        node_id=areas.ground.identity.node_id,
    )
