"""Messaging while the daemon runs: begun when it is first needed, on the buses of all paired daemons.

It is needed once there is a peer, a room, or somebody who asks; until then neither Zenoh nor a database takes memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.peering.homes import Homes
from sublet.daemon.peering.identity import Identity
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.ports.peer_link import PeerLink
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.clocks import ClockDiffers, clock_differs, clocks_that_differ
from sublet.daemon.rooms.entities import daemon_of
from sublet.daemon.rooms.known_buses import KnownBuses
from sublet.daemon.rooms.node_carrier import NodeCarrier
from sublet.daemon.rooms.own_device import OwnDevice
from sublet.daemon.rooms.peer_buses import PeerBuses
from sublet.daemon.rooms.relay_keeper import RelayKeeper
from sublet.daemon.rooms.running_rooms import Door, RunningRooms, admit
from sublet.daemon.storage.state import ROOM_STORE
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId, entity_domain
from sublet.tasks import Services

if TYPE_CHECKING:
    from sublet.messaging.backends.zenoh_network import ZenohNetwork
    from sublet.messaging.declaring.registry import Registry
    from sublet.messaging.links.links import Links
    from sublet.messaging.membership.consent import ConsentRules
    from sublet.messaging.mending.healing import Healing
    from sublet.messaging.service import MessagingService

SHUT_OUT: Final = "said on the bus of rooms what no Sublet says"
ASK_WHAT_RUNS: Final = "ask what runs there, and remove the peer if nobody knows"
LOOK_SECONDS: Final = 15.0
"""How often peers are asked where their bus is: a peer that was started again may have another port."""
MAX_LIES_TOLD: Final = 16
"""Members whose signed roots are contradicted that the status names; the log names all."""

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
        sockets: directory of the sockets between Zenoh and its links; by default below ``state_dir``.
        services: keeps what messaging runs for as long as it lives.
        consent: decides which invitations are taken up without anybody's yes; by default none are.
        homes: knows from which home each peer may come.
        set_aside: keeps bytes of the database that were damaged (what they were, the bytes, why).
        relay: keeps this daemon at its relay; None for no relay.
        nodes: carries what federation says while the bus runs; None for nobody.
        device: this daemon as a device of somebody who is at home elsewhere.
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
        sockets: Path | None = None,
        services: Services | None = None,
        consent: ConsentRules | None = None,
        homes: Homes | None = None,
        set_aside: Callable[[str, bytes, str], object] = lambda *_: None,
        relay: RelayKeeper | None = None,
        nodes: NodeCarrier | None = None,
        device: OwnDevice | None = None,
    ) -> None:
        self._nodes = nodes or NodeCarrier()
        self.device = device or OwnDevice(identity, state_dir)
        self._relay = relay if relay is not None and relay.relay is not None else None
        self._services = services
        self._consent = consent
        self._identity = identity
        self._keys_dir = state_dir / "keys"
        self._database = state_dir / ROOM_STORE
        self._homes = homes
        self._set_aside = set_aside
        self._healing: Healing | None = None
        self._buses_file = state_dir / "bus_doors.json"
        self._sockets = sockets or state_dir / "bus"
        self.buses = PeerBuses(identity.node_id, port.host, peers, link)
        self.port = port
        self._peers = peers
        self._settings = settings
        self._agents = agents
        self._links: Links | None = None
        self._present: set[str] = set()
        """Agents that have their entity."""
        self._service: MessagingService | None = None
        self._failure: SubletError | None = None
        self._bus_failure: str | None = None
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
    def encryption(self) -> str:
        """From whom what is said in a new room is hidden, where nobody says otherwise."""
        return self._settings.encryption

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return self._service is not None

    def expect(self, room_id: RoomId, home: str) -> None:
        """Take up a room that the daemon with a node id opens for a delegation which was agreed to."""
        if self._service is not None:
            self._service.invited.expect(room_id, daemon_of(home), home)

    def agents_changed(self) -> None:
        """Look at once which agents are served now."""
        self._peers_changed.set()

    async def level(self) -> int | None:
        """Return the compliance level that would be, or is, reached (ezagent 6.3)."""
        try:
            return (await asyncio.to_thread(registry_of, self._settings.extensions)).level
        except SubletError as error:
            log.warning("messaging can't begin", reason=str(error))
            return None

    async def serve(self) -> None:
        """Run it once it is needed, until cancelled.

        Raises:
            Exception: what it failed with, which is told to whoever asks as well; it can be run again.
        """
        if self._peers.list() or self._database.exists() or self._relay is not None:
            self._wanted.set()
        while True:
            await self._wanted.wait()
            mends = False
            try:
                async with self._linked() as links, self._running(links) as running:
                    mends = await running.until_damaged(partial(self._join, running.network, links))
            except Exception as error:
                mends = await self._blame(error)
                self._failure = SubletError(
                    LocalCode.UNAVAILABLE,
                    f"messaging does not run: {error}",
                    "See the daemon's log; `sublet whoami` tries again.",
                )
                if not mends:
                    raise
            finally:
                self._service = None
                self._wanted.clear()
                self._settled.set()
            if mends:  # at once, and whoever asks meanwhile waits for it
                self._settled = asyncio.Event()
                self._wanted.set()

    async def _blame(self, error: Exception) -> bool:
        """Tell whether a failure is one of the database, which is mended now."""
        healing, starting = self._healing, self._service is None
        return healing is not None and await asyncio.to_thread(partial(healing.blame, error, starting=starting))

    @asynccontextmanager
    async def _linked(self) -> AsyncIterator[Links]:
        from cryptography.hazmat.primitives.asymmetric import ed25519

        from sublet.messaging.links.keys import LinkKeys
        from sublet.messaging.links.links import Links

        def make() -> Links:
            key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(self._identity.key))
            door = Door(self._homes) if self._homes is not None else None
            return Links(LinkKeys(self._keys_dir, key, self._identity.home), self._sockets, self.port.listener, door)

        self._links = links = await asyncio.to_thread(make)
        try:
            yield links
        finally:
            self._links = None
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(links.close)

    @asynccontextmanager
    async def _running(self, links: Links) -> AsyncIterator[RunningRooms]:
        from sublet.daemon.rooms.entities import load_entities, load_named
        from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
        from sublet.messaging.delivery.loops import LoopLimits
        from sublet.messaging.mending.agreed import AGREED_FILE, Agreed
        from sublet.messaging.mending.healing import Healing
        from sublet.messaging.service import MessagingService

        registry = await asyncio.to_thread(registry_of, self._settings.extensions)
        self._present = set(self._agents())
        entities = await asyncio.to_thread(load_entities, self._keys_dir, self._identity, sorted(self._present))
        entities += [elsewhere] if (elsewhere := self.device.local()) is not None else []
        if self._healing is None:
            self._healing = Healing(self._database, _now_ms, self._set_aside)
        healing = self._healing
        await asyncio.to_thread(healing.mend, registry, entities)
        network = await asyncio.to_thread(ZenohNetwork, Endpoints())
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
            consent=self._consent,
            make_entity=partial(load_named, self._keys_dir, self._identity),
            damaged=healing.suspect,
            lacking=healing.lacking,
            agreed=Agreed(self._database.with_name(f"{self._database.stem}{AGREED_FILE}"), _now_ms),
        )
        loop = asyncio.get_running_loop()
        network.on_change(lambda: _soon(loop, healing.link_changed))
        async with service.running():
            self._service = service
            self._settled.set()
            parts = service, network, healing, registry, entities, self._relay, self._services, self.device
            with self._nodes.attached(network):
                yield RunningRooms(*parts)

    async def _join(self, network: ZenohNetwork, links: Links) -> None:
        """Keep to the buses of all paired daemons, until cancelled.

        Of two daemons that reach each other the one with the smaller node id calls, so that there is one connection.
        """
        buses = await asyncio.to_thread(KnownBuses, self._buses_file)
        called: dict[bytes, str] = {}
        while True:
            self._peers_changed.clear()
            await self._admit_agents()
            try:
                await asyncio.to_thread(admit, network, links, self._peer_keys(), called)
                called = await asyncio.to_thread(links.call, await self.buses.addresses(buses))
                await asyncio.to_thread(admit, network, links, self._peer_keys(), called)
                self._bus_failure = None
            except OSError as error:
                log.warning("the bus could not be opened again, which is tried later", reason=str(error))
                self._bus_failure = str(error)
            with anyio.move_on_after(LOOK_SECONDS):
                await self._peers_changed.wait()

    def _peer_keys(self) -> dict[str, bytes]:
        """Return the pinned key of each paired daemon, by node id."""
        return {peer.node_id: peer.public_key for peer in self._peers.list()}

    def remarks(self) -> list[str]:
        """Return what is wrong with rooms here, and with which peers.

        That is why they do not run, who shares none, is shut out or gives no answers, whose clocks differ, whose signed
        roots are contradicted, and what was damaged.
        """
        found = [why] if (why := self.why_not()) is not None else []
        found += [f"{apart.what}; {apart.remedy}" for apart in self.buses.apart().values()]
        shut_out = self._links.shut_out() if self._links is not None else {}
        for peer in self._peers.list():
            if (why := shut_out.get(peer.public_key)) is not None:
                found.append(f"{peer.name} {SHUT_OUT} ({why}), and is shut out for a while each time; {ASK_WHAT_RUNS}")
        asked_last = self._service.asked_last() if self._service is not None else {}
        for peer in self._peers.list():
            if (why := asked_last.get(peer.node_id)) is not None:
                found.append(f"{peer.name} {why} to what rooms ask it, and is asked last; see whether it runs")
        found += [str(one) for one in self.clocks().values()]
        found += self._relay.remarks() if self._relay is not None else []
        contradicted = self._service.contradicted if self._service is not None else {}
        for (room_id, entity), lie in list(contradicted.items())[:MAX_LIES_TOLD]:
            found.append(f"the daemon of {entity} {lie} ({room_id}); ask whoever runs it, it may have lost data")
        return found + (self._healing.remarks() if self._healing is not None else [])

    def clocks(self) -> dict[str, ClockDiffers]:
        """Return the peers whose clocks differ from ours, by name, and by how much."""
        ahead_ms = self._service.ahead_ms if self._service is not None else {}
        return clocks_that_differ({peer.node_id: peer.name for peer in self._peers.list()}, ahead_ms)

    def why_other_clock(self, name: str) -> str:
        """Return by how much the clock of the peer of that name differs; empty where it does not."""
        found = self.clocks().get(name)
        return "" if found is None else str(found)

    def other_clock_of(self, entity: EntityId) -> str:
        """Return the same of the daemon of an entity; the peer's name here is not told."""
        ahead_ms = self._service.ahead_ms.get(self.home(entity)) if self._service is not None else None
        return "" if ahead_ms is None else clock_differs(f"the clock of {entity}'s daemon", ahead_ms)

    def home(self, entity: EntityId) -> str:
        """Return the node id of the daemon at which an entity is at home, as far as it is known here."""
        return self._service.home(entity) if self._service is not None else entity_domain(entity)

    def why_not(self) -> str | None:
        """Return why rooms don't run, or run without a bus; None where nothing is wrong."""
        if self._service is None and self._failure is not None:
            return self._failure.message
        if self._bus_failure is not None:
            return f"the bus of rooms could not be opened, which is tried again: {self._bus_failure}"
        return None

    async def _admit_agents(self) -> None:
        """Give an entity to agents that are served since the files were loaded anew."""
        from sublet.daemon.rooms.entities import agent_of, load_agent

        for agent in sorted(set(self._agents()) - self._present):
            self._present.add(agent)
            if agent_of(agent, self._identity.node_id) is not None and self._service is not None:
                await self._service.add(await asyncio.to_thread(load_agent, self._keys_dir, self._identity, agent))

    def _may_invite(self, home: str) -> bool:
        """Tell whether the entities of a daemon may invite ours at all: its key is pinned, or it is this one."""
        return home == self._identity.node_id or self._peers.by_node_id(home) is not None

    def _on_peers(self) -> None:
        self._peers_changed.set()
        if self._peers.list() and self._service is None and not self._wanted.is_set():
            self._settled = asyncio.Event()
            self._wanted.set()


def _soon(loop: asyncio.AbstractEventLoop, run: Callable[[], None]) -> None:
    """Run something on the event loop, from any thread; once that has ended nothing needs it any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(run)


def registry_of(third_party: Sequence[str]) -> Registry:
    """Return all that is declared: built-ins, extensions, and those of third parties that are configured."""
    from sublet.daemon.rooms.third_party import load_third_party
    from sublet.messaging.builtins import BUILT_INS
    from sublet.messaging.declaring.registry import Registry
    from sublet.messaging.extensions import EXTENSIONS

    return Registry((*BUILT_INS, *EXTENSIONS, *load_third_party(third_party)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
