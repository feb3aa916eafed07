"""Messages from before an extension was enabled: whoever annotates one makes the map, and two who do lose nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pycrdt import Array, Doc

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions.reactions import REACTIONS
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.envelope import seal, unpack
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import NOW_MS, Peer, peers

ALL = (*BUILT_INS, REACTIONS)


def room_from_before(*members: Peer) -> tuple[str, str]:
    """Return a room with a message, in which reactions were enabled only after that."""
    first, *others = members
    invited = [other.id for other in others]
    room: str = first.do("room.create", name="room", invite=invited, extensions=[])["room_id"]
    ref = first.do("message.send", room_id=room, body="old")["ref_id"]
    with pytest.raises(SubletError, match="reactions is switched off"):
        first.do("reactions.add", room_id=room, ref_id=ref, emoji="👍")
    first.engine.commit()
    first.do("room.update_config", room_id=room, changes={"enabled_extensions": ["reactions"]})
    out = first.published()
    for other in others:
        other.engine.here.want(room)
        other.hear(out)
    return room, ref


def reactions(peer: Peer, room: str) -> Any:
    (ref,) = peer.do("timeline.list", room_id=room)["refs"]
    return {emoji: sorted(entry["users"]) for emoji, entry in ref.get("reactions", {}).items()}


def test_two_who_react_first_at_once_lose_neither_side() -> None:
    alice, bob, carol = everyone = peers("alice", "bob", "carol", declarations=ALL)
    room, ref = room_from_before(*everyone)
    alice.do("reactions.add", room_id=room, ref_id=ref, emoji="👍")
    bob.do("reactions.add", room_id=room, ref_id=ref, emoji="👍")
    alices, bobs = alice.published(), bob.published()
    alice.hear(bobs)
    bob.hear(alices)
    carol.hear([*bobs, *alices])
    wanted = {"👍": sorted([alice.id, bob.id])}
    assert reactions(alice, room) == reactions(bob, room) == reactions(carol, room) == wanted
    carol.do("reactions.add", room_id=room, ref_id=ref, emoji="🎉")
    alice.do("reactions.remove", room_id=room, ref_id=ref, emoji="👍")
    bob.do("reactions.remove", room_id=room, ref_id=ref, emoji="👍")
    out = [*alice.published(), *bob.published(), *carol.published()]
    for peer in everyone:
        peer.hear(out)
        assert reactions(peer, room) == {"🎉": [carol.id]}
    assert carol.kinds().count("reaction.added") == 3
    assert carol.kinds().count("reaction.removed") == 2


@pytest.mark.parametrize("seed", range(30))
def test_all_show_the_same_whatever_the_order(seed: int) -> None:
    random = Random(seed)
    everyone = peers("alice", "bob", "carol", declarations=ALL)
    room, ref = room_from_before(*everyone)
    wanted: dict[str, set[str]] = {}
    sent: list[tuple[Peer, Any]] = []
    for _ in range(10):
        peer = random.choice(everyone)
        emoji = random.choice("👍🎉")
        if peer.id in wanted.get(emoji, set()):
            peer.do("reactions.remove", room_id=room, ref_id=ref, emoji=emoji)
            wanted[emoji].discard(peer.id)
        else:
            peer.do("reactions.add", room_id=room, ref_id=ref, emoji=emoji)
            wanted.setdefault(emoji, set()).add(peer.id)
        sent += [(peer, item) for item in peer.published()]
        if random.random() < 0.5:
            hearer = random.choice(everyone)
            hearer.hear([item for _, item in sent])
    random.shuffle(sent)
    for peer in everyone:
        peer.hear([item for _, item in sent])
        assert reactions(peer, room) == {emoji: sorted(users) for emoji, users in wanted.items() if users}


def test_what_another_implementation_deletes_is_told() -> None:
    alice, bob, eve = peers("alice", "bob", "eve", declarations=ALL)
    room: str = alice.do("room.create", name="r", invite=[bob.id, eve.id])["room_id"]
    ref = alice.do("message.send", room_id=room, body="x")["ref_id"]
    out = alice.published()
    bob.engine.here.want(room)
    bob.hear(out)
    bob.do("reactions.add", room_id=room, ref_id=ref, emoji="👍")
    alice.hear(bob.published())
    delete = deleted(alice, room, f"👍:{bob.id}", bob.client)
    name = doc_id("index", room_id=room, shard_id="2026-11")
    alice.engine.intake.take([Arrival(seal(eve.entity.key, eve.id, name, NOW_MS, delete).raw)])
    assert reactions(alice, room) == {"👍": [bob.id]}
    assert "reaction.removed" not in alice.kinds()
    for at in range(2):
        alice.engine.intake.take([Arrival(seal(bob.entity.key, bob.id, name, NOW_MS + at, delete).raw)])
    assert reactions(alice, room) == {}
    assert alice.kinds().count("reaction.removed") == 1


def deleted(peer: Peer, room: str, key: str, client: int) -> bytes:
    """Return the update with which yrs deletes a reaction."""
    doc: Doc[Any] = Doc(client_id=client, skip_gc=True)
    array: Array[Any] = doc.get("timeline", type=Array)
    for seq in range(1, peer.store.last_seq() + 1):
        known = unpack(peer.store.envelope(seq))
        if "/index/" in known.doc_id:
            doc.apply_update(known.payload)
    before = doc.get_state()
    del array[0]["ext.reactions"][key]
    return doc.get_update(before)
