"""The area of panels: one task for agents of several nodes, which federation finds and lending gives a copy each."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.app.agents import Agents
from sublet.app.federation import FederationArea
from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.lending import Lending
from sublet.daemon.panels.checks import Checks
from sublet.daemon.panels.runs import PanelRuns
from sublet.daemon.panels.service import PanelParts, PanelService
from sublet.tasks import Service


@dataclass(frozen=True, slots=True)
class Panels:
    """Its parts.

    Args:
        runs: drives panels.
        service: the operations on them.
    """

    runs: PanelRuns
    service: PanelService

    @property
    def running(self) -> Service:
        """What has to run."""
        return Service("panels", self.runs.serve)


def make_panels(
    ground: Ground, governance: Governance, lending: Lending, agents: Agents, federation: FederationArea
) -> Panels:
    """Make the parts; no panel is gone on with yet."""
    checks = Checks(agents.sandbox, ground.scratch_root, agents.cages)
    runs = PanelRuns(ground.journal, lending.delegator, lending.results, lending.trees.staging, checks)
    service = PanelService(
        PanelParts(
            gate=governance.gate,
            journal=ground.journal,
            admission=lending.admission,
            delegator=lending.delegator,
            results=lending.results,
            runs=runs,
            find=federation.finding.several,
        )
    )
    return Panels(runs, service)
