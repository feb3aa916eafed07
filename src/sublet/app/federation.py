"""The area of federation: agents of paired daemons are found and asked as if they were here (DESIGN 8)."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

from sublet.app.agents import Agents
from sublet.app.governance import Governance
from sublet.app.ground import Ground
from sublet.app.node_http import NodeHttp
from sublet.app.peering import Peering
from sublet.app.rooms import Rooms
from sublet.daemon.api.sessions import AskAnswer, AskBegun, AskOutput
from sublet.daemon.federation.admission import NodeAdmission
from sublet.daemon.federation.finding import Finding
from sublet.daemon.federation.ledger import FederationLedger
from sublet.daemon.federation.ledger_schema import STORE_NAME
from sublet.daemon.federation.service import FederationParts, FederationService
from sublet.daemon.federation.settings_file import SettingsFile
from sublet.daemon.federation.work import NodeWork
from sublet.daemon.peering.peers import MAX_PEERS, Peer
from sublet.daemon.rooms.relayed_nodes import RelayedNodes
from sublet.daemon.supervising.asking import AdmittedRequest
from sublet.federation.carriers import Carriers
from sublet.federation.node import Around, Federation
from sublet.federation.ports import KnownNode, OwnAgent
from sublet.federation.post import Own
from sublet.federation.settings import FEDERATION_FILE, Settings
from sublet.policy.decision import Subject
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.events import EventKind
from sublet.protocol.federation.addresses import NodeName, default_node_name, node_name
from sublet.protocol.federation.events import MAX_CAPABILITIES
from sublet.protocol.ids import AGENT_ID
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.supervisor_agent import AGENT, ANSWER
from sublet.tasks import Service

_KINDS = {
    "node": EventKind.NODE_STATE,
    "agent": EventKind.NODE_AGENT,
    "task": EventKind.NODE_TASK,
    "message": EventKind.NODE_MESSAGE,
}


@dataclass(frozen=True, slots=True)
class FederationArea:
    """Its parts.

    Args:
        federation: knows the nodes.
        settings: ``federation.toml``.
        finding: finds agents of all nodes.
        http: reaches nodes that are not paired.
        service: the operations on nodes.
    """

    federation: Federation
    settings: SettingsFile
    finding: Finding
    http: NodeHttp
    service: FederationService

    @property
    def services(self) -> list[Service]:
        """What has to run."""
        return [
            Service("federation", self.federation.serve),
            Service("federation.toml", partial(self.settings.watch, self._changed)),
            Service("federation over HTTP", self.http.serve),
        ]

    def _changed(self) -> None:
        self.http.look()
        self.federation.paired()


async def make_federation(
    ground: Ground, governance: Governance, peering: Peering, rooms: Rooms, agents: Agents
) -> FederationArea:
    """Make the parts; nobody is spoken with yet.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a federation.toml that can't be used; ``UNAVAILABLE`` where the journal
            can't be opened.
    """
    identity, offer, supervising = ground.identity, ground.offer, agents.supervising
    settings = await SettingsFile.load(ground.config_dir / FEDERATION_FILE)
    name = own_name(settings.now(), identity.public_key)
    ledger = FederationLedger(ground.state_dir / STORE_NAME)
    await ledger.open()
    ground.opened.wait_for(ledger.aclose)

    http = NodeHttp(identity.key, ground.state_dir / "keys", settings.now, peering.peers.list)
    ground.opened.wait_for(http.aclose)

    def known() -> list[KnownNode]:
        return [known_node(one) for one in peering.peers.list()] + http.listed.known()

    def paired(node_id: str) -> KnownNode | None:
        peer = peering.peers.by_node_id(node_id)
        return known_node(peer) if peer is not None else None

    def pinned(node_id: str) -> KnownNode | None:
        return paired(node_id) or http.listed.pinned(node_id)

    def offered() -> dict[OwnAgent, bool]:
        running = supervising.dispatcher.running
        return {own_agent(one): running(one.id) > 0 for one in offer.now() if AGENT_ID.fullmatch(one.id)}

    def ask(
        agent_id: str, text: str, caller: Subject, owner: str, chain: Chain
    ) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        metadata: dict[str, JsonValue] = {AGENT: agent_id, ANSWER: False}
        return supervising.asking.ask(AdmittedRequest(text, caller, owner, chain, metadata), None)

    async def tell(what: Literal["node", "agent", "task", "message"], data: Mapping[str, JsonValue]) -> None:
        await ground.journal.events.append_event(_KINDS[what], None, data)

    federation = Federation(
        Around(
            own=Own(name, identity.key, identity.node_id, identity.fingerprint),
            settings=settings.now,
            known=known,
            pinned=pinned,
            agents=offered,
            names=ledger,
            carrier=Carriers(rooms.nodes, http.caller),
            admission=NodeAdmission(governance.gate),
            work=NodeWork(ask, supervising.asking.make_room),
            ledger=ledger,
            tell=tell,
        )
    )
    rooms.nodes.begin(federation.receive, federation.look, RelayedNodes(identity.key, paired))
    http.begin(federation.own, federation.receive, federation.paired)
    peering.peers.listeners.append(federation.paired)
    finding = Finding(governance.gate, federation)
    service = FederationService(
        FederationParts(
            gate=governance.gate,
            federation=federation,
            finding=finding,
            settings=settings,
            agents=lambda: list(offered()),
            ask=ask,
            chain_of=ground.callers.chain,
            max_depth=ground.config.supervisor.max_depth,
            wall=time.time,
            said=ground.journal.events.newest_of,
            http=http,
        )
    )
    return FederationArea(federation, settings, finding, http, service)


@lru_cache(MAX_PEERS)
def known_node(peer: Peer) -> KnownNode:
    """Return a peer as federation knows it."""
    return KnownNode(peer.node_id, peer.public_key, peer.fingerprint, peer.name)


def own_name(settings: Settings, public_key: bytes) -> NodeName:
    """Return what this node calls itself: as federation.toml says, or as its machine is called.

    Args:
        settings: of federation.toml.
        public_key: raw Ed25519 key of this node.
    """
    return node_name(settings.node_id) if settings.node_id else default_node_name(socket.gethostname(), public_key)


def own_agent(config: AgentConfig) -> OwnAgent:
    """Return an agent as other nodes are told of it: its skills and their tags are its capabilities."""
    words = [word for skill in config.skills for word in (skill.id, *skill.tags)]
    folded = [word.strip().lower().replace(" ", "-") for word in words]
    known = tuple(dict.fromkeys(word for word in folded if AGENT_ID.fullmatch(word)))
    runtime = config.provider.type.lower().replace(" ", "-")
    return OwnAgent(config.id, runtime if AGENT_ID.fullmatch(runtime) else "other", known[:MAX_CAPABILITIES])
