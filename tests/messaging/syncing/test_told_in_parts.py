"""What a member tells in parts, since an answer is bounded, it tells once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, cast

import pytest

from sublet.messaging.accepting.arrival import ArrivalReport
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.reconciling import logs
from sublet.messaging.syncing.answers import tree
from sublet.messaging.syncing.differences import take
from sublet.messaging.syncing.reconciler import Asks, Reconciler, _With
from sublet.protocol.ezagent.bundle import Bundle
from support.reconciled import stated
from support.rooms import Peer, peers, shared_room

pytestmark = pytest.mark.anyio


class Direct:
    """Asks another engine at once."""

    def __init__(self, one: Peer, other: Peer, room: str) -> None:
        self._one, self._other, self._room = one, other, room
        self.answers = 0

    async def fetch(self, key: str, body: bytes, of: Collection[str] | None = None) -> list[bytes]:
        self.answers += 1
        answer = tree(self._other.engine, self._room, body)
        assert answer is not None
        return [answer]

    async def take(self, room_id: str | None, bundle: Bundle) -> ArrivalReport:
        return take(self._one.engine, room_id, bundle)


async def test_what_was_told_in_part_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_TOLD_BYTES", 6_000)
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, *EXTENSIONS))
    room = shared_room(alice, bob)
    for number in range(40):
        ref = alice.do("message.send", room_id=room, body=str(number))["ref_id"]
        alice.do("mutable.update", room_id=room, ref_id=ref, body=f"edited {number}")
    alice.published()
    theirs, asks = stated(bob, alice, room), Direct(bob, alice, room)
    assert theirs is not None

    async def call(run: Callable[[Any], Any]) -> Any:
        found = run(bob.engine)
        bob.engine.commit()
        return found

    places = [bytes(place) for (place,) in alice.store._db.execute("SELECT place FROM leaves ORDER BY place")]
    before = bob.engine.intake.counts["duplicate"]
    came = await Reconciler(call, cast(Asks, asks))._fetch(_With(room, theirs, "", 1.0), places)
    assert came
    assert asks.answers > 3
    assert bob.store.tree.root(room).same(alice.store.tree.root(room))
    assert bob.engine.intake.counts["duplicate"] == before
