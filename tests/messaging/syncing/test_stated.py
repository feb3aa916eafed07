"""Of a member with several devices the one that has stated a root is asked what it holds, and no other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from nacl.signing import SigningKey

from sublet.messaging.accepting.arrival import ArrivalReport
from sublet.messaging.engine.engine import Engine
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.syncing.asking import Answer, Late
from sublet.messaging.syncing.reconciler import Reconciler
from sublet.protocol.ezagent.bundle import Bundle
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.sealing.device_statements import add, prove_held
from sublet.protocol.ezagent.sealing.wire import NO_ID
from sublet.protocol.ids import node_id
from support.rooms import Peer, peers, shared_room

pytestmark = pytest.mark.anyio
LAPTOP = SigningKey(b"\7" * 32)
NODE = node_id(bytes(LAPTOP.verify_key))


def laptop_of(bob: Peer) -> Peer:
    """Return a second device of somebody."""
    key, seal_key = bytes(LAPTOP.verify_key), bytes(LAPTOP.verify_key.to_curve25519_public_key())
    said = add(bob.entity.key, bob.id, NO_ID, key, "laptop", seal_key, prove_held(LAPTOP, bob.id, seal_key))
    made = Peer("bob", 7)
    made.entity = LocalEntity(bob.entity.record.with_statements((said,)), LAPTOP, 7)
    made.open()
    return made


class One:
    """Asks one daemon, which states a root and answers nothing else."""

    def __init__(self, answer: Answer[bytes]) -> None:
        self._answer = answer
        self.asked: set[tuple[str, tuple[str, ...] | None]] = set()

    async def fetch(self, key: str, body: bytes, of: Collection[str] | None = None) -> list[bytes]:
        self.asked.add((key, tuple(of) if of is not None else None))
        return []

    async def fetch_from(self, key: str, body: bytes, late: Late[bytes]) -> list[Answer[bytes]]:
        return [self._answer]

    async def newest(self, room_id: RoomId) -> None:
        pass

    def patience(self, peer: str) -> float:
        return 10.0

    def differs(self, room_id: RoomId) -> None:
        pass

    async def take(self, room_id: RoomId | None, bundle: Bundle) -> ArrivalReport:
        return ArrivalReport()

    async def key(self, entity: EntityId) -> None:
        pass


async def test_the_device_that_has_stated_another_root_is_asked_for_what_differs() -> None:
    alice, bob = peers("alice", "bob")
    room, laptop = shared_room(alice, bob), laptop_of(bob)
    laptop.meet(alice)
    laptop.catch_up(alice, room)

    async def call(run: Callable[[Engine], Any]) -> Any:
        answer = run(alice.engine)
        alice.engine.commit()
        return answer

    async def compared() -> tuple[frozenset[str], set[tuple[str, tuple[str, ...] | None]]]:
        stated = laptop.engine.roots.statement(room)
        assert stated is not None
        asks = One(Answer(NODE, stated))
        found = await Reconciler(call, asks).room(room)
        assert found.heard
        return found.alike, asks.asked

    assert await compared() == (frozenset({NODE}), set()), "it has proven by its link whose it is"
    alice.do("message.send", room_id=room, body="the laptop lacks it")
    assert await compared() == (frozenset(), {(doc_id("tree", room_id=room, entity_id=bob.id), (NODE,))})
