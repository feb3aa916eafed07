"""Where the buses of peers are, and with whom no rooms are shared since the forms of both buses differ."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import structlog

from sublet import deadlines
from sublet.daemon.net.addresses import is_loopback
from sublet.daemon.peering.peers import Peer, PeerStore
from sublet.daemon.ports.peer_link import BUS_WIRE, BusAddress, PeerLink
from sublet.daemon.rooms.known_buses import KnownBuses
from sublet.daemon.rooms.versions import Apart, rooms_apart
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import EntityId

if TYPE_CHECKING:
    from sublet.messaging.links.sockets import Address

ASK_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


class PeerBuses:
    """Asks peers where their buses are.

    Args:
        node_id: of this daemon.
        host: where the bus of this daemon is.
        peers: those that are paired.
        link: asks them.
    """

    def __init__(self, node_id: str, host: str, peers: PeerStore, link: PeerLink) -> None:
        self._node_id = node_id
        self._host = host
        self._peers = peers
        self._link = link
        self._asked: set[str] = set()
        """Node ids of peers whose bus is known to have our form."""
        self._apart: dict[str, BusAddress] = {}
        """The bus of each peer, by node id, with which no rooms are shared since it has another form than ours."""

    def apart(self) -> dict[str, Apart]:
        """Return the peers with which no rooms are shared since their versions do not fit, by name."""
        found = {peer.name: self._apart.get(peer.node_id) for peer in self._peers.list()}
        return {name: rooms_apart(name, bus) for name, bus in found.items() if bus is not None}

    def why_apart(self, name: str) -> str:
        """Return why no rooms are shared with the peer of that name; empty where they are, or may be."""
        apart = self.apart().get(name)
        return "" if apart is None else f"{apart.what}; {apart.remedy}"

    def why_apart_from(self, entity: EntityId, home: str) -> str:
        """Return the same of the daemon at which an entity is at home; the peer's name here is not told."""
        bus = self._apart.get(home)
        return "" if bus is None else rooms_apart(f"the daemon of {entity}", bus).what

    async def addresses(self, buses: KnownBuses) -> dict[bytes, Sequence[Address]]:
        """Return where peers have their buses; of who does not answer, where it was when they last said so."""
        told: dict[str, BusAddress] = {}
        found: dict[bytes, Sequence[Address]] = {}
        peers = self._peers.list()

        async def ask(peer: Peer, host: str) -> None:
            try:
                async with deadlines.timeout(ASK_SECONDS):
                    bus = await self._link.bus(peer.address())
            except Exception as error:
                # Whatever a peer answers with, the others are asked.
                if not isinstance(error, SubletError | TimeoutError):
                    log.exception("a peer could not be asked where its bus is", peer=peer.name)
                bus = buses.get(peer.node_id)
            if bus is None:
                return
            told[peer.node_id] = bus
            self._note_wire(peer, bus)
            if bus.wire == BUS_WIRE and self._calls(peer, host):
                found[peer.public_key] = await _resolved(host, bus.port)

        async with anyio.create_task_group() as group:
            for peer in peers:
                host = urlsplit(peer.a2a_url).hostname if peer.a2a_url is not None else None
                # Who calls us is asked once, so that one with another form of bus is told of.
                if host is not None and (self._calls(peer, host) or peer.node_id not in self._asked):
                    group.start_soon(ask, peer, host)
        nodes = {peer.node_id for peer in peers}
        self._apart = {node: bus for node, bus in self._apart.items() if node in nodes}
        self._asked &= nodes
        await asyncio.to_thread(buses.keep, told, nodes)
        return found

    def _note_wire(self, peer: Peer, bus: BusAddress) -> None:
        """Tell once of a peer whose bus has another form than ours."""
        if bus.wire == BUS_WIRE:
            self._asked.add(peer.node_id)
            if self._apart.pop(peer.node_id, None) is not None:
                log.info("rooms are shared with a peer again", peer=peer.name, version=bus.version)
            return
        if peer.node_id not in self._apart:
            apart = rooms_apart(peer.name, bus)
            log.warning(apart.what, peer=peer.name, version=bus.version, wire=bus.wire, remedy=apart.remedy)
        self._apart[peer.node_id] = bus

    def _calls(self, peer: Peer, host: str) -> bool:
        """Tell whether it is on us to call a peer: with the smaller node id, or where the peer can't call us."""
        unreachable = is_loopback(self._host) and not is_loopback(host)
        return self._node_id < peer.node_id or unreachable


async def _resolved(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host, none where its name is not known now."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # what a peer calls its host may be no name at all
        return ()
    return tuple(dict.fromkeys(address for _, _, _, _, address in found))
