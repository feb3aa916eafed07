"""Serves the operations of ``api.peers`` (DESIGN 4.2, 9)."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.peers import (
    ADD_PEER,
    CREATE_PAIR_LINK,
    LIST_PAIR_LINKS,
    LIST_PEERS,
    REMOVE_PEER,
    RENAME_PEER,
    SHOW_DIRECTORY,
    AddPeer,
    CreatePairLink,
    Directory,
    OnePeer,
    PairLink,
    PairLinkView,
    PeerView,
    RenamePeer,
)
from sublet.daemon.governing.gatekeeper import Gatekeeper, who
from sublet.daemon.governing.lend_roots import LendRoots
from sublet.daemon.lending.declared import DeclaredSandboxes
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.operations.table import serves
from sublet.daemon.peering.pairing import PairingService
from sublet.daemon.peering.peer_directory import PeerDirectory
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.working.executor import Executor
from sublet.policy.decision import Action, Resource, Subject


@dataclass(frozen=True, slots=True)
class PeerParts:
    """What the service is made of. ``node_id`` is this daemon's."""

    gate: Gatekeeper
    peers: PeerStore
    directory: PeerDirectory
    pairing: PairingService
    lend_roots: LendRoots
    declared: DeclaredSandboxes
    delegator: Delegator
    executor: Executor
    node_id: str


class PeerService:
    """Tells who is paired, pairs, and ends all that a removed peer has here."""

    def __init__(self, parts: PeerParts) -> None:
        self._parts = parts
        self._gate = parts.gate

    @serves(SHOW_DIRECTORY)
    async def show_directory(self, request: Nothing, caller: Subject) -> Directory:
        peers = [
            await self._with_sandboxes(peer)
            for peer in await self._parts.directory.views()
            if not self._gate.hides(caller, Action.DELEGATION_CREATE, peer.name)
        ]
        return Directory(
            node_id=self._parts.node_id,
            peers=[self._usable(peer, caller) for peer in peers],
            lend_roots=sorted({*caller.roots, *self._parts.lend_roots.paths()}),
        )

    @serves(CREATE_PAIR_LINK)
    async def create_pair_link(self, request: CreatePairLink, caller: Subject) -> PairLink:
        return await self._parts.pairing.create_link(request.ttl_seconds, who(caller))

    @serves(LIST_PAIR_LINKS)
    async def list_pair_links(self, request: Nothing, caller: Subject) -> list[PairLinkView]:
        return await self._parts.pairing.links()

    @serves(ADD_PEER)
    async def add_peer(self, request: AddPeer, caller: Subject) -> PeerView:
        return await self._parts.pairing.add(request.link, request.name)

    @serves(LIST_PEERS)
    async def list_peers(self, request: Nothing, caller: Subject) -> list[PeerView]:
        return [peer.view() for peer in self._parts.peers.list()]

    @serves(RENAME_PEER)
    async def rename_peer(self, request: RenamePeer, caller: Subject) -> PeerView:
        return await self._parts.pairing.rename(request.name, request.new_name)

    @serves(REMOVE_PEER)
    async def remove_peer(self, request: OnePeer, caller: Subject) -> PeerView:
        peer = await self._parts.peers.remove(request.name)
        why = f"the peer was removed by {who(caller)}"
        await self._parts.delegator.end_peer(peer.public_key, why)
        await self._parts.executor.end_peer(peer.fingerprint, why)
        return peer.view()

    async def _with_sandboxes(self, peer: PeerView) -> PeerView:
        declared = await self._parts.declared.of(peer.fingerprint, [agent.id for agent in peer.agents])
        agents = [
            agent.model_copy(update={"sandbox": sandbox}) for agent, sandbox in zip(peer.agents, declared, strict=True)
        ]
        return peer.model_copy(update={"agents": agents})

    def _usable(self, peer: PeerView, caller: Subject) -> PeerView:
        if not peer.usable:
            return peer
        decision = self._gate.foresee(caller, Action.DELEGATION_CREATE, Resource(peer.name)).decision
        return peer if decision.allowed else peer.model_copy(update={"usable": False, "why_not": decision.reason})
