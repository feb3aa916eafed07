"""Makes the parts of a daemon from its configuration and its store, and hands each what it needs (DESIGN 2)."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

from sublet.app.faces import load_peer_link, load_text_link
from sublet.app.parts import Parts
from sublet.daemon.approvals.approver import Approver
from sublet.daemon.approvals.call_gate import CallGate
from sublet.daemon.approvals.gates import Gates
from sublet.daemon.approvals.grant_store import GrantStore
from sublet.daemon.approvals.questions import Questions
from sublet.daemon.approvals.service import ApprovalParts, ApprovalService
from sublet.daemon.approvals.tool_gate import GateParts
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.control.callers import Callers, chain_signer
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.governing.policy_service import PolicyService
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.lending.end_hook import EndHook
from sublet.daemon.lending.lend_roots import LendRoots
from sublet.daemon.lending.lent_access import DelegatorTools
from sublet.daemon.lending.staged_tree import Trees
from sublet.daemon.modules.gateway_feed import GatewayFeed
from sublet.daemon.modules.gateway_input import GatewayInputs
from sublet.daemon.modules.gateways import GATEWAYS, Gateways
from sublet.daemon.modules.start import Modules
from sublet.daemon.net.network import is_loopback
from sublet.daemon.peering.identity import Identity
from sublet.daemon.peering.nonces import NonceMemory
from sublet.daemon.peering.pairing import OwnAddress, PairingService
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.peering.spoken_names import spoken_names
from sublet.daemon.peering.tokens import TokenStore
from sublet.daemon.peering.whereabouts import Whereabouts
from sublet.daemon.reloading.reloader import AgentSource, Reloader
from sublet.daemon.results.result_store import ResultStore
from sublet.daemon.results.staged_results import StagedResults
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.start import make_rooms
from sublet.daemon.rooms.work_tools import WorkTools
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.prune_stores import EndedAssignments, EndedDelegations, KeptResults, Shadows
from sublet.daemon.storage.pruning import Pruning
from sublet.daemon.storage.store import Store
from sublet.daemon.supervising.messages import Messages
from sublet.daemon.supervising.offer import Offer, rules_of
from sublet.daemon.supervising.prune_store import KeptSessions
from sublet.daemon.supervising.remote_agents import PairedAndPublic
from sublet.daemon.supervising.replay_service import ReplayService
from sublet.daemon.supervising.start import Around, Supervising
from sublet.daemon.web_access.logins import WebLogins
from sublet.daemon.working.executor import Executor
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.daemon.working.job_files import job_files
from sublet.daemon.working.onward import OnwardTools
from sublet.disk.set_aside import SetAside
from sublet.policy.engine import Policy
from sublet.policy.lending import KEY_DIRECTORIES, Protected
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.agent_questions import AgentQuestions
from sublet.supervisor.confinement import Confinement, confinement
from sublet.supervisor.model import Sandbox
from sublet.supervisor.processes import ProcessOwners
from sublet.supervisor.providers import ProviderTools, make_provider
from sublet.supervisor.slots import Slots
from sublet.supervisor.tools import JoinedTools
from sublet.tasks import Services
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.tar_format import TarLimits
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.bundles.carrier import GitCarrier
from sublet.workspace.carrier import Carrier
from sublet.workspace.changes.apply import Applier
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.locks import DirectoryLocks
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.requirements import require_sandbox, require_transport
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, Unsandboxed
from sublet.workspace.sandbox.cage import Cages
from sublet.workspace.sandbox.cgroups import Cgroups
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.reverse import ReverseAcceptor
from sublet.workspace.staging.private_views import Staging


async def make_parts(
    config: DaemonConfig,
    store: Store,
    identity: Identity,
    own_address: Callable[[], OwnAddress],
    audit_log: AuditLog,
    bus_port: BusPort,
    services: Services,
) -> Parts:
    """Make everything that is no face.

    Args:
        config: what was configured.
        store: the open database.
        identity: the daemon's keys.
        own_address: how this daemon is reached, which is known once its faces have started.
        audit_log: is told every decision.
        bus_port: where paired daemons reach rooms here.
        services: keeps what parts run for as long as they live.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a file that can't be loaded.
    """
    state_dir = Path(config.home.state_dir)
    aside = SetAside(state_dir)
    journal = Journal(store, aside)
    own = [Path(config.home.config_dir), state_dir, Path(config.home.runtime_dir), config.mount_root]
    protected = Protected(Path.home(), tuple(own))
    policy_file = config.policy_file or Path(config.home.config_dir) / "policy.json"
    policy = await asyncio.to_thread(Policy.load, policy_file, protected)
    sandbox = _sandbox(config, own)
    cages = Cages(await asyncio.to_thread(Cgroups, f"sublet-{hashlib.sha256(bytes(state_dir)).hexdigest()[:16]}"))
    agent_source = AgentSource(config.agent_file, Path(config.home.config_dir) / "agent.json")
    lend_roots = await LendRoots.load(journal)
    gate = Gatekeeper(policy, journal, lend_roots.paths, audit_log)
    slots = Slots(policy.limits.slots)
    scratch_root = state_dir / "scratch"
    owners = ProcessOwners()
    callers = Callers(owners, identity.node_id)
    nonces = await NonceMemory.load(store)
    grants = GrantStore(journal)
    questions = Questions(journal, grants)
    await questions.set_torn_aside()
    approver = await Approver.load(journal, grants, identity.node_id, nonces)
    gate_parts = GateParts(gate, journal, grants, questions, approver)
    gates = Gates(gate_parts, lambda: offer.agents)
    calls = CallGate(gate_parts)
    gateways = Gateways(
        Path(config.home.config_dir) / GATEWAYS,
        state_dir,
        scratch_root,
        sandbox,
        lambda module, given: GatewayInputs(supervising.parts, gate).handle(module, given),
        GatewayFeed(journal, gate, state_dir / GATEWAYS),
        services,
    )

    def could_call(agent_id: str, tool: str) -> bool:
        return gate.could_call(agent_id, offer.role_of(agent_id), tool)

    peers = await PeerStore.load(journal)
    link = load_peer_link(identity)
    messaging = Messaging(
        *(identity, state_dir, bus_port, peers, link, config.messaging),
        agents=lambda: [one.id for one in offer.agents],
        sockets=Path(config.home.runtime_dir) / "bus",
        services=services,
    )
    rooms = make_rooms(messaging, identity.node_id, peers, gate, journal)
    asks = AgentQuestions(could_call, rooms.work)
    onward = OnwardTools(lambda: offer.agents, could_call)
    supervising = Supervising(
        Around(
            config=config.supervisor,
            state_dir=state_dir,
            config_dir=Path(config.home.config_dir),
            scratch_root=scratch_root,
            node_id=identity.node_id,
            journal=journal,
            policy=policy,
            gate=gate,
            slots=slots,
            agents=lambda: offer.agents,
            provider=lambda agent_id: offer.provider(agent_id),
            tool_gate=gates.of_run,
            chain_of=callers.chain,
            capabilities=lambda: modules.registry.now.version,
            modules=gateways,
            questions=asks,
        )
    )
    modules = Modules(
        Path(config.home.config_dir),
        config.capability_dirs,
        scratch_root,
        sandbox,
        cages,
        gate,
        calls,
        journal,
        lambda agent_id: offer.capabilities_of(agent_id),
        could_call,
    )
    await modules.load()
    tools = ProviderTools(
        sandbox,
        cages,
        owners,
        chain_signer(identity),
        supervising.super_agent,
        files=job_files,
        source=JoinedTools(modules.tools, asks, onward, WorkTools(rooms.work, could_call)),
        conversations=state_dir / "conversations",
        remote=PairedAndPublic(
            functools.cache(lambda: load_text_link(identity)),
            lambda name: peers.find_address(name),
            chain_signer(identity),
        ),
    )
    offer = await asyncio.to_thread(Offer, agent_source.load, lambda agent: make_provider(agent, tools))
    policy.use(await asyncio.to_thread(policy.prepare, rules_of(offer.agents)))
    hook = EndHook(config.hooks.on_end, notify=config.hooks.notify)
    reverse = ReverseAcceptor()
    git = GitSandbox(confined=not config.unsandboxed)
    data_plane = DataPlane(identity.ssh_host_key, reverse, scratch_root, git)
    auditor = Auditor(state_dir)
    staging = Staging(state_dir, lambda: policy.limits.admission, aside)
    trees = Trees(journal, auditor, staging, ChangeSets(state_dir, auditor, staging, git))
    locks = DirectoryLocks()

    def reverse_port(source_host: str) -> int | None:
        """Return the port at which a delegator can dial us: one on loopback is out of reach from elsewhere."""
        host, port = data_plane.address
        return port if is_loopback(source_host) or not is_loopback(host) else None

    def held(agent: AgentConfig) -> Confinement:
        """Return how an agent is held here."""
        return confinement(agent, offer.agents, sandboxed=bool(sandbox.enforced))

    def in_force() -> None:
        slots.capacity = policy.limits.slots
        rooms.messaging.agents_changed()

    reloader = Reloader(
        agent_source,
        offer,
        policy,
        policy_file,
        rules_of,
        modules.registry,
        gateways,
        in_force,
        lambda kind, data: journal.append_event(kind, None, dict(data)),
        hook.note,
    )

    def require(transport: str) -> None:
        """Raise ``DEP_MISSING`` where this machine can't do an executor's work with that transport."""
        require_transport(transport)
        if transport == "git":
            git.check()
        if sandbox.enforced:
            require_sandbox()

    def unpacked_limits() -> TarLimits:
        """Return how much a delegator's archive may hold: as much as may be lent from here."""
        bounds = policy.limits.admission
        return TarLimits(2 * bounds.max_files, bounds.max_total_bytes, bounds.max_file_bytes)

    mounts = Mounts(config.mount_root)
    carriers: dict[str, Carrier] = {
        "sshfs": mounts,
        "archive": ArchiveCarrier(state_dir / "work", unpacked_limits),
        "git": GitCarrier(state_dir / "clones", unpacked_limits, git),
    }
    return Parts(
        identity=identity,
        journal=journal,
        policy=policy,
        gate=gate,
        audit_log=audit_log,
        policy_service=PolicyService(gate, policy, audit_log, offer.role_of, lend_roots.paths),
        peers=peers,
        tokens=await TokenStore.load(journal),
        nonces=nonces,
        grants=grants,
        approver=approver,
        calls=calls,
        approvals=ApprovalService(ApprovalParts(gate, approver, grants, questions, identity.node_id, gates.nests)),
        web_logins=WebLogins(),
        lend_roots=lend_roots,
        offer=offer,
        hook=hook,
        reloader=reloader,
        sandbox=sandbox,
        git=git,
        cages=cages,
        confinement=held,
        slots=slots,
        carriers=carriers,
        mounts=mounts,
        trees=trees,
        locks=locks,
        data_plane=data_plane,
        link=link,
        pairing=PairingService(
            *(identity, journal, peers, link, own_address),
            lambda: spoken_names(policy.rules, offer.agents),
        ),
        whereabouts=Whereabouts(identity, peers, link, own_address, nonces),
        delegator=Delegator(
            DelegatorTools(
                *(journal, data_plane, link, trees, locks, state_dir / "leases"),
                limits=lambda: policy.limits.admission,
                rooms=rooms.lent,
            ),
            lambda record: peers.address_of(record.peer, record.peer_fingerprint, record.created_at),
            hook.tell,
        ),
        executor=Executor(
            journal=journal,
            gate=gate,
            slots=slots,
            tools=ExecutorTools(carriers, reverse, offer.provider, scratch_root, gates.of_assignment, rooms.work),
            agents=lambda: offer.agents,
            max_ttl_seconds=lambda: policy.limits.max_ttl_seconds,
            reverse_port=reverse_port,
            confinement=held,
            require=require,
            node_id=identity.node_id,
            max_depth=lambda: config.supervisor.max_depth,
        ),
        messages=Messages(supervising.parts, gate, lambda: offer.agents),
        supervising=supervising,
        callers=callers,
        modules=modules,
        onward=onward,
        gateways=gateways,
        replays=ReplayService(gate, journal, policy),
        pruning=Pruning(
            journal,
            [
                EndedDelegations(journal),
                EndedAssignments(journal),
                KeptResults(trees.changes),
                Shadows(journal, auditor, locks),
                KeptSessions(supervising.sessions, supervising.store),
                rooms.over,
            ],
            lambda: config.retention,
        ),
        results=StagedResults(journal, locks, ResultStore(trees.changes, Applier(trees.changes))),
        rooms=rooms,
        scratch_root=scratch_root,
        aside=aside,
    )


def _sandbox(config: DaemonConfig, own: list[Path]) -> Sandbox:
    """Return what confines agents: what is masked stays invisible whatever their configuration shows."""
    if config.unsandboxed:
        return Unsandboxed()
    return BubblewrapSandbox([*own, *(Path.home() / name for name in KEY_DIRECTORIES)])
