"""All areas of one daemon, made one after the other; each takes those before it, and the types hold that order."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.app.agents import Agents, make_agents
from sublet.app.federation import FederationArea, make_federation
from sublet.app.governance import Governance, make_governance
from sublet.app.ground import Ground
from sublet.app.lending import Lending, make_lending
from sublet.app.offices import OfficeArea, make_offices
from sublet.app.panels import Panels, make_panels
from sublet.app.peering import Peering, make_peering
from sublet.app.rooms import Rooms, make_rooms
from sublet.app.upkeep import Upkeep, make_upkeep
from sublet.app.working import Working, make_working


@dataclass(frozen=True, slots=True)
class Areas:
    """The areas, in the order in which they are made. Nothing of them serves yet."""

    ground: Ground
    governance: Governance
    offices: OfficeArea
    peering: Peering
    rooms: Rooms
    lending: Lending
    agents: Agents
    working: Working
    federation: FederationArea
    panels: Panels
    upkeep: Upkeep


async def make_areas(ground: Ground) -> Areas:
    """Make all areas on ``ground``.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a file that can't be used, ``DEP_MISSING`` where a package is not here.
    """
    governance = await make_governance(ground)
    offices = await make_offices(ground, governance)
    peering = await make_peering(ground, governance)
    rooms = make_rooms(ground, governance, peering)
    lending = make_lending(ground, governance, peering, rooms)
    agents = await make_agents(ground, governance, peering, rooms, lending)
    working = make_working(ground, governance, rooms, lending, agents)
    federation = await make_federation(ground, governance, peering, rooms, agents)
    panels = make_panels(ground, governance, lending, agents, federation)
    upkeep = make_upkeep(ground, governance, rooms, lending, agents)
    return Areas(ground, governance, offices, peering, rooms, lending, agents, working, federation, panels, upkeep)
