"""Messaging while the daemon runs: begun when it is first needed, on the buses of all paired daemons.

It is needed once there is a peer, a room, or somebody who asks; until then neither Zenoh nor a database takes memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import structlog

from sublet.daemon.config_file import MessagingConfig
from sublet.daemon.net.network import is_loopback
from sublet.daemon.peering.identity import Identity
from sublet.daemon.peering.peers import Peer, PeerStore
from sublet.daemon.ports import BusDoor, PeerLink
from sublet.daemon.rooms.bus_port import BusPort, endpoint
from sublet.daemon.rooms.known_doors import KnownDoors
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, entity_domain
from sublet.tasks import Services

if TYPE_CHECKING:
    from sublet.messaging.backends.zenoh_network import Tls, ZenohNetwork
    from sublet.messaging.engine.registry import Registry
    from sublet.messaging.service import MessagingService

LOOK_SECONDS: Final = 15.0
"""How often peers are asked where their bus is: a peer that was started again may have another port."""
ASK_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


class Messaging:
    """Runs ``MessagingService`` when it is needed.

    Args:
        identity: the daemon's key, which vouches for our entities.
        state_dir: holds the keys and the database.
        port: where our bus is.
        peers: the paired daemons, whose buses we join.
        link: asks a peer for the port of its bus.
        settings: how long recipients may be silent, and how far agents may answer each other.
        agents: returns the ids of the agents that are served now.
        services: keeps what messaging runs for as long as it lives.
    """

    def __init__(
        self,
        identity: Identity,
        state_dir: Path,
        port: BusPort,
        peers: PeerStore,
        link: PeerLink,
        settings: MessagingConfig,
        agents: Callable[[], Sequence[str]] = tuple,
        services: Services | None = None,
    ) -> None:
        self._services = services
        self._identity = identity
        self._keys_dir = state_dir / "keys"
        self._database = state_dir / "messaging.db"
        self._doors_file = state_dir / "bus_doors.json"
        self._tls: Tls | None = None
        self._trusted: frozenset[bytes] = frozenset()
        self.port = port
        self._peers = peers
        self._link = link
        self._settings = settings
        self._agents = agents
        self._present: set[str] = set()
        """Agents that have their entity."""
        self._service: MessagingService | None = None
        self._failure: SubletError | None = None
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._peers_changed = asyncio.Event()
        peers.listeners.append(self._on_peers)

    async def use(self) -> MessagingService:
        """Return the service, once it runs.

        Raises:
            SubletError: ``UNAVAILABLE`` where it can't be started; the next call tries again.
        """
        if self._service is None and not self._wanted.is_set():
            self._settled = asyncio.Event()
            self._wanted.set()
        await self._settled.wait()
        if self._service is not None:
            return self._service
        assert self._failure is not None
        raise self._failure

    async def wanted(self) -> None:
        """Return once somebody wants it who can't be served yet."""
        await self._wanted.wait()

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return self._service is not None

    def agents_changed(self) -> None:
        """Look at once which agents are served now."""
        self._peers_changed.set()

    async def level(self) -> int | None:
        """Return the compliance level that would be, or is, reached (ezagent 6.3)."""
        try:
            return (await asyncio.to_thread(_registry, self._settings.extensions)).level
        except SubletError as error:
            log.warning("messaging can't begin", reason=str(error))
            return None

    async def serve(self) -> None:
        """Run it once it is needed, until cancelled.

        Raises:
            Exception: what it failed with, which is told to whoever asks as well; it can be run again.
        """
        if self._peers.list() or self._database.exists():
            self._wanted.set()
        while True:
            await self._wanted.wait()
            try:
                async with self._running() as network:
                    await self._join(network)
            except Exception as error:
                self._failure = SubletError(
                    LocalCode.UNAVAILABLE,
                    f"messaging does not run: {error}",
                    "See the daemon's log; `sublet whoami` tries again.",
                )
                raise
            finally:
                self._service = None
                self._wanted.clear()
                self._settled.set()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[ZenohNetwork]:
        from sublet.daemon.rooms.bus_tls import make_tls
        from sublet.daemon.rooms.entities import load_entities, load_named
        from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
        from sublet.messaging.delivery.loops import LoopLimits
        from sublet.messaging.service import MessagingService

        registry = await asyncio.to_thread(_registry, self._settings.extensions)
        self._present = set(self._agents())
        entities = await asyncio.to_thread(load_entities, self._keys_dir, self._identity, sorted(self._present))
        self._tls = await asyncio.to_thread(make_tls, self._keys_dir, self._identity)
        await self._trust()
        endpoints = Endpoints(
            self.port.listen,
            relays=tuple(self._settings.relays),
            tls=self._tls,
            relay_authority=Path(authority) if (authority := self._settings.relay_authority) is not None else None,
        )
        network = await asyncio.to_thread(ZenohNetwork, endpoints)
        service = MessagingService(
            self._database,
            registry,
            network,
            entities,
            _now_ms,
            self._may_invite,
            self._settings.undeliverable_seconds,
            LoopLimits(self._settings.max_hops, self._settings.agent_messages_per_minute),
            daemon_bytes=self._settings.megabytes_of_daemon << 20,
            services=self._services,
            make_entity=partial(load_named, self._keys_dir, self._identity),
        )
        async with service.running():
            self._service = service
            self._settled.set()
            yield network

    async def _join(self, network: ZenohNetwork) -> None:
        """Keep to the buses of all paired daemons, until cancelled.

        Of two daemons that reach each other the one with the smaller node id calls, so that there is one connection.
        """
        called: tuple[tuple[str, ...], frozenset[bytes]] = (), self._trusted
        doors = await asyncio.to_thread(KnownDoors, self._doors_file)
        while True:
            self._peers_changed.clear()
            await self._admit_agents()
            await self._trust()
            wanted = await self._endpoints(doors)
            if self._differs(called, wanted):
                try:
                    await asyncio.to_thread(network.call, wanted)
                    called = wanted, self._trusted
                except OSError as error:
                    log.warning("the bus could not be opened again, which is tried later", reason=str(error))
            with anyio.move_on_after(LOOK_SECONDS):
                await self._peers_changed.wait()

    async def _trust(self) -> None:
        """Write down whose certificates are good on the bus; a session takes that up when it is opened."""
        from sublet.daemon.rooms.bus_tls import trust

        assert self._tls is not None, "made when messaging began"
        keys = frozenset((*(peer.public_key for peer in self._peers.list()), bytes(self._identity.key.verify_key)))
        if keys != self._trusted:
            await asyncio.to_thread(trust, self._tls, keys)
            self._trusted = keys

    def _differs(self, called: tuple[tuple[str, ...], frozenset[bytes]], wanted: tuple[str, ...]) -> bool:
        """Tell whether the bus has to be opened again: for other addresses or, if certificates matter, other keys."""
        uses_tls = self.port.tls or any(one.startswith("tls/") for one in wanted)
        return wanted != called[0] or (uses_tls and self._trusted != called[1])

    async def _admit_agents(self) -> None:
        """Give an entity to agents that are served since the files were loaded anew."""
        from sublet.daemon.rooms.entities import agent_of, load_agent

        for agent in sorted(set(self._agents()) - self._present):
            self._present.add(agent)
            if agent_of(agent, self._identity.node_id) is not None and self._service is not None:
                await self._service.add(await asyncio.to_thread(load_agent, self._keys_dir, self._identity, agent))

    async def _endpoints(self, doors: KnownDoors) -> tuple[str, ...]:
        """Return where peers have their buses; of who does not answer, where it was when they last said so."""
        told: dict[str, BusDoor] = {}
        found: list[str] = []

        async def ask(peer: Peer, host: str) -> None:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    door = await self._link.bus(peer.address())
            except Exception as error:
                # Whatever a peer answers with, the others are asked.
                if not isinstance(error, SubletError | TimeoutError):
                    log.exception("a peer could not be asked where its bus is", peer=peer.name)
                door = doors.get(peer.node_id)
            if door is not None and (door.tls or is_loopback(host)):
                told[peer.node_id] = door
                found.append(endpoint(host, door.port, tls=door.tls))

        async with anyio.create_task_group() as group:
            for peer in self._peers.list():
                host = urlsplit(peer.a2a_url).hostname if peer.a2a_url is not None else None
                if host is not None and self._calls(peer, host):
                    group.start_soon(ask, peer, host)
        await asyncio.to_thread(doors.keep, told, {peer.node_id for peer in self._peers.list()})
        return tuple(sorted(set(found)))

    def _calls(self, peer: Peer, host: str) -> bool:
        """Tell whether it is on us to call a peer: with the smaller node id, or where the peer can't call us."""
        unreachable = is_loopback(self.port.host) and not is_loopback(host)
        return self._identity.node_id < peer.node_id or unreachable

    def _may_invite(self, entity: EntityId) -> bool:
        """Tell whether an entity may bring ours into a room: its domain is a pinned key, or our own."""
        domain = entity_domain(entity)
        return domain == self._identity.node_id or self._peers.by_node_id(domain) is not None

    def _on_peers(self) -> None:
        self._peers_changed.set()
        if self._peers.list() and self._service is None and not self._wanted.is_set():
            self._settled = asyncio.Event()
            self._wanted.set()


def _registry(third_party: Sequence[str]) -> Registry:
    from sublet.daemon.rooms.third_party import load_third_party
    from sublet.messaging.builtins import BUILT_INS
    from sublet.messaging.engine.registry import Registry
    from sublet.messaging.extensions import EXTENSIONS

    return Registry((*BUILT_INS, *EXTENSIONS, *load_third_party(third_party)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
