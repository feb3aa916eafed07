"""A flood of invitations: a paired daemon brings the lender's person into room after room."""

from __future__ import annotations

import asyncio
import itertools
import time
from functools import partial

from attacks.flood import Flood, Target
from attacks.floods import bus
from attacks.kit.neighbour import identity_key
from sublet.daemon.peering.identity import load_identity
from sublet.daemon.rooms.entities import human_of, load_entities
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.engine.engine import Engine
from sublet.messaging.syncing.answers import offer
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id
from sublet.protocol.ids import node_id
from support.asked import answers
from support.rooms import MemoryBlobs

ANSWER_SECONDS = 2.0
FORGET_EVERY = 200
"""Rooms after which the attacker forgets its own, so that it is quick."""


async def invitations(target: Target) -> None:
    """Invite into new rooms, one after the other, as quickly as they are taken."""
    keys = target.peer_home / "state" / "keys"
    human = load_entities(keys, load_identity(keys))[0]
    guest = human_of(node_id(bus._called(target.peer_home)))
    place = channel_key(doc_id("inbox", entity_id=guest), Channel.UPDATES)
    link = await asyncio.to_thread(bus._link, target, identity_key(target.peer_home))
    registry = Registry(BUILT_INS)

    def rooms() -> list[bytes]:
        engine = Engine(registry, SqliteStore(None), [human], lambda: time.time_ns() // 1_000_000, MemoryBlobs())
        made = []
        for number in range(FORGET_EVERY):
            arguments = {"name": f"forced {number}", "invite": [guest]}
            room = run_operation(
                registry.operations, engine.operating, human.record.entity_id, "room.create", arguments
            )
            engine.commit()
            raw = offer(engine, guest, [room["room_id"]])
            assert raw is not None, "the guest is a member"
            made.append(raw)
        engine.store.close()
        return made

    try:
        for _ in itertools.count():
            for raw in await asyncio.to_thread(rooms):
                await asyncio.to_thread(partial(answers, link, place, raw, ANSWER_SECONDS, link.called))
    finally:
        await asyncio.to_thread(link.close)


FLOODS = (
    Flood(
        name="rooms: invitations",
        who="peer",
        covers=["messaging.membership.joining:Joining.invited", "messaging.membership.consent:keep"],
        run=invitations,
    ),
)
