"""Rooms while they run: what is looked at beside them, and who may have a link."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from sublet.daemon.peering.homes import Homes
from sublet.daemon.rooms.own_device import OwnDevice
from sublet.daemon.rooms.relay_keeper import RelayKeeper
from sublet.protocol.ids import node_id
from sublet.tasks import Service, Services

if TYPE_CHECKING:
    from sublet.messaging.backends.zenoh_network import ZenohNetwork
    from sublet.messaging.declaring.registry import Registry
    from sublet.messaging.identities.keyring import LocalEntity
    from sublet.messaging.links.links import Links
    from sublet.messaging.mending.healing import Healing
    from sublet.messaging.service import MessagingService


@dataclass(frozen=True, slots=True)
class RunningRooms:
    """Rooms while they run."""

    service: MessagingService
    network: ZenohNetwork
    healing: Healing
    registry: Registry
    entities: list[LocalEntity]
    relay: RelayKeeper | None = None
    services: Services | None = None
    device: OwnDevice | None = None

    async def until_damaged(self, beside: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run something until the database is found to be damaged, which is noted and mended at the next opening."""
        from sublet.messaging.mending.asking_again import Asks

        service = self.service
        asks = Asks(service.on_engine, service.asking.document, service.asking.key, service.fetch)
        async with anyio.create_task_group() as group:
            services = self.services or Services()
            if self.device is not None:
                services.start(group, Service("own device", partial(self.device.run, service)))
            if self.relay is not None:
                services.start(group, Service("relay", partial(self.relay.run, self.network, service)))
            group.start_soon(beside)
            await self.healing.watch(self.registry, self.entities, asks)
            group.cancel_scope.cancel()
        return True


@dataclass(frozen=True, slots=True)
class Door:
    """``Doorman``, by what is known of peers' homes."""

    homes: Homes

    def admits(self, peer: bytes, home: str) -> bool:
        """``Doorman.admits``."""
        return self.homes.admits(node_id(peer), home)

    def opened(self, peer: bytes, home: str) -> None:
        """``Doorman.opened``."""
        self.homes.opened(node_id(peer), home)

    def ended(self, peer: bytes, home: str) -> None:
        """``Doorman.ended``."""
        self.homes.ended(node_id(peer), home)


def admit(network: ZenohNetwork, links: Links, peers: Mapping[str, bytes], called: Mapping[bytes, str]) -> None:
    """Have a session with each paired daemon, let these in and cut all others; blocks.

    Args:
        network: has the sessions.
        links: lets in.
        peers: the pinned keys, by node id.
        called: where those are reached that we call.

    Raises:
        OSError: a session can't be opened; who is no peer any more was cut.
    """
    from sublet.messaging.backends.zenoh_network import Endpoints

    keys = frozenset(peers.values())
    if links.trusted - keys:
        links.trust(links.trusted & keys)
    try:
        network.join(
            {
                node: Endpoints((links.inbound(key),), (called[key],) if key in called else ())
                for node, key in peers.items()
            }
        )
    finally:
        if links.trusted != keys:
            links.trust(keys)
