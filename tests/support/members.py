"""Services that run whole in one process, on a hub in memory where links are cut."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.membership.consent import ConsentRules
from sublet.messaging.ports.agreed import KeepsAgreed
from sublet.messaging.service import MessagingService
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.question import NONCE_BYTES, encode_question
from support.consents import TakesAll
from support.memory_network import MemoryHub, MemoryNetwork
from support.rooms import Peer, local_entity, registry_of

SECONDS = 30
PAUSE_SECONDS = 0.02
"""Between two questions, so that whoever waits leaves the processor to what it waits for."""


class Member:
    """A service with one entity on a hub."""

    def __init__(self, name: str, client: int, service: MessagingService, network: MemoryNetwork) -> None:
        self.id = local_entity(name, client).record.entity_id
        self.service = service
        self.network = network
        self.bus = service.bus(self.id)

    async def bodies(self, room: str) -> list[str | None]:
        """Return the bodies of a room's last messages; none where it is not known."""
        try:
            page = await self.bus.timeline.list(room_id=room, limit=200, peek=True)
        except SubletError:
            return []
        return [ref.get("body") for ref in page["refs"]]

    async def until(self, room: str, wanted: Callable[[list[str | None]], bool]) -> None:
        """Wait until the room shows what is wanted, asking the others again and again."""
        with anyio.fail_after(SECONDS):
            while not wanted(await self.bodies(room)):
                await self.service.asking.room(room)
                await anyio.sleep(PAUSE_SECONDS)


@asynccontextmanager
async def member(
    name: str,
    client: int,
    hub: MemoryHub,
    path: Path,
    accepts: bool = True,
    more: tuple[Declaration, ...] = (),
    make_entity: Callable[[str], LocalEntity] | None = None,
    consent: ConsentRules | None = None,
    agreed: KeepsAgreed | None = None,
) -> AsyncIterator[Member]:
    """Run a service with one entity.

    Args:
        name: of the entity; the same name has the same key.
        client: of this process.
        hub: where it meets the others.
        path: holds its database.
        accepts: whether anybody may bring it into rooms.
        more: declarations beside the built-ins.
        make_entity: see ``MessagingService``.
        consent: what becomes of invitations; by default all are taken up, as most tests are about something else.
        agreed: see ``MessagingService``.
    """
    network = hub.join()
    service = MessagingService(
        path / f"{name}.db",
        registry_of((*BUILT_INS, *more)),
        network,
        [local_entity(name, client)],
        lambda: time.time_ns() // 1_000_000,
        lambda _: accepts,
        make_entity=make_entity,
        consent=consent or TakesAll(),
        agreed=agreed,
    )
    async with service.running():
        yield Member(name, client, service, network)


async def room_of(first: Member, *others: Member) -> str:
    """Return a room that all of them have, made by the first."""
    room: str = (await first.bus.room.create(name="r", invite=[other.id for other in others]))["room_id"]
    for other in others:
        with anyio.fail_after(SECONDS):
            since = 0
            while not await other.bus.room.list():
                since = (await other.service.watch(other.id, since, 1.0))["cursor"]
    return room


def question(key: str, peer: Peer, body: bytes) -> bytes:
    """Return a question as an entity asks it."""
    return encode_question(key, peer.entity.record, peer.entity.key, peer.clock(), os.urandom(NONCE_BYTES), body)
