"""The area of agents: which are offered, what does their work, the supervisor over them, and modules beside them."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sublet.app.capabilities import Capabilities, make_capabilities
from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.lending import Lending
from sublet.app.peering import Peering
from sublet.app.rooms import Rooms
from sublet.app.supervising import Around, Supervising, make_supervising
from sublet.daemon.governing.agent_rules import rules_of
from sublet.daemon.modules.gateway_feed import GatewayFeed
from sublet.daemon.modules.gateway_input import GatewayInputs
from sublet.daemon.modules.gateways import GATEWAYS, Gateways
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.peering.chain_signer import chain_signer
from sublet.daemon.rooms.work_tools import WorkTools
from sublet.daemon.supervising.agent_source import AgentSource
from sublet.daemon.supervising.messages import MessageAnswerer
from sublet.daemon.supervising.offer import Offering
from sublet.daemon.supervising.remote_agents import PairedAndPublic
from sublet.daemon.supervising.replay_service import ReplayService
from sublet.daemon.working.job_files import job_files
from sublet.daemon.working.onward import OnwardTools
from sublet.policy.lending import KEY_DIRECTORIES
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.agent_questions import AgentQuestions
from sublet.supervisor.confinement import Confinement, confinement
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.providers import ProviderTools, make_provider
from sublet.supervisor.slots import Slots
from sublet.supervisor.tools import JoinedTools
from sublet.tasks import Service
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, Unsandboxed
from sublet.workspace.sandbox.cage import Cages
from sublet.workspace.sandbox.cgroups import Cgroups


@dataclass(frozen=True, slots=True)
class Agents:
    """Its parts.

    Args:
        source: where agents come from.
        offering: fills the offer of this daemon from there.
        sandbox: confines what agents run.
        cages: hold it to its limits.
        slots: bound what is at work at once.
        capabilities: programs that agents and people run as tools.
        gateways: programs that send to agents and are sent to.
        inputs: what gateways bring.
        supervising: the supervisor with its sessions.
        messages: answers plain messages.
        replays: decides recorded sessions again.
    """

    source: AgentSource
    offering: Offering
    sandbox: Sandbox
    cages: Cages
    slots: Slots
    capabilities: Capabilities
    gateways: Gateways
    inputs: GatewayInputs
    supervising: Supervising
    messages: MessageAnswerer
    replays: ReplayService

    def confinement(self, agent: AgentConfig) -> Confinement:
        """Return how an agent is held here."""
        return confinement(agent, self.offering.offer.agents, sandboxed=bool(self.sandbox.enforced))

    @property
    def gateway_service(self) -> Service:
        """What runs gateways."""
        return Service("gateways", partial(self.gateways.serve, self.inputs.handle))


async def make_agents(
    ground: Ground, governance: Governance, peering: Peering, rooms: Rooms, lending: Lending
) -> Agents:
    """Make what does the work of agents, and offer those that are configured.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a file that can't be used, ``DEP_MISSING`` where a provider's package is
            not here.
    """
    config, journal, offer = ground.config, ground.journal, ground.offer
    policy, gate, may = governance.policy, governance.gate, governance.agent_calls.could_call
    sandbox = _sandbox(ground)
    cages = Cages(await asyncio.to_thread(Cgroups, _cgroup_of(ground.state_dir)))
    ground.opened.wait_for(partial(asyncio.to_thread, cages.close))
    slots = Slots(lambda: policy.limits.slots)
    capabilities = await make_capabilities(ground, governance, sandbox, cages)
    gateways = Gateways(
        ground.config_dir / GATEWAYS,
        ground.state_dir,
        ground.scratch_root,
        sandbox,
        GatewayFeed(journal, gate, ground.state_dir / GATEWAYS),
        ground.services,
    )
    asks = AgentQuestions(may, rooms.work)
    supervising = make_supervising(
        Around(
            config=config.supervisor,
            state_dir=ground.state_dir,
            config_dir=ground.config_dir,
            scratch_root=ground.scratch_root,
            node_id=ground.identity.node_id,
            journal=journal,
            gate=gate,
            slots=slots,
            agents=offer.now,
            provider=offer.provider,
            tool_gate=governance.gates.of_run,
            chain_of=ground.callers.chain,
            capabilities=capabilities.registry.version,
            hub=gateways,
            questions=asks,
        )
    )
    onward = OnwardTools(offer.now, may, OperationTable(lending.delegations))
    signer = chain_signer(ground.identity)
    tools = ProviderTools(
        sandbox,
        cages,
        ground.owners,
        signer,
        supervising.super_agent,
        files=job_files,
        source=JoinedTools(capabilities.tools, asks, onward, WorkTools(rooms.work, may)),
        conversations=ground.state_dir / "conversations",
        remote=PairedAndPublic(peering.texts, peering.peers.find_address, signer),
    )
    source = AgentSource(config.agent_file, ground.config_dir / "agent.json")
    offering = Offering(offer, source.load, lambda agent: make_provider(agent, tools))
    await asyncio.to_thread(offering.use, await asyncio.to_thread(offering.read))
    policy.use(await asyncio.to_thread(policy.prepare, rules_of(offer.agents)))
    return Agents(
        source=source,
        offering=offering,
        sandbox=sandbox,
        cages=cages,
        slots=slots,
        capabilities=capabilities,
        gateways=gateways,
        inputs=GatewayInputs(supervising.asking, gate),
        supervising=supervising,
        messages=MessageAnswerer(supervising.asking, gate, offer.now),
        replays=ReplayService(gate, journal, policy),
    )


def _sandbox(ground: Ground) -> Sandbox:
    """Return what confines agents: what is masked stays invisible whatever their configuration shows."""
    if ground.config.unsandboxed:
        return Unsandboxed()
    return BubblewrapSandbox([*ground.own_dirs, *(Path.home() / name for name in KEY_DIRECTORIES)])


def _cgroup_of(state_dir: Path) -> str:
    return f"sublet-{hashlib.sha256(bytes(state_dir)).hexdigest()[:16]}"
