"""Whatever editors of a text sign, in whatever order it comes, all replicas show the same."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from messaging.extensions.test_collab import SMILE, Text, hostile, part
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.backends import sqlite_store
from sublet.messaging.extensions.mutable import content_document
from sublet.messaging.texts import text_replay
from sublet.protocol.ezagent.envelope import seal, unpack
from sublet.protocol.ezagent.ids import client_id
from sublet.protocol.ezagent.yjs.decode import decode_update
from support.rooms import Peer


class Forger:
    """Signs updates of a text that claim anything about what is there."""

    def __init__(self, text: Text, random: Random) -> None:
        self.text, self.random = text, random
        self.name = content_document(text.room, text.content_id())
        _, bob, carol, _ = text.all
        self._writers = {client_id(bob.id, 5_000 + index): bob for index in range(3)} | {
            client_id(carol.id, 6_000): carol
        }
        self._clocks = dict.fromkeys(self._writers, 0)
        rows = (unpack(raw) for raw in text.alice.store.log_after(self._number(), {}, 1 << 30)[0])
        updates = [decode_update(envelope.payload) for envelope in rows]
        self._items = [
            (update.client, item.clock + offset)
            for update in updates
            for item in update.items
            for offset in range(item.length)
        ]

    def _number(self) -> int:
        return self.text.alice.engine.documents.open(self.name).row.number

    def next(self) -> bytes:
        random, client = self.random, self.random.choice(list(self._writers))
        if random.random() < 0.25:
            start = random.choice(self._items)
            there = sum(item[0] == start[0] and item[1] >= start[1] for item in self._items)
            made = hostile(client, 0, deletes=(*start, min(random.choice((1, 1, 2, 3)), there)))
        else:
            said = random.choice(("x", "yz", SMILE, "q" + SMILE, "\u00e9"))
            beside = random.choice([None, *self._items]), random.choice([None, None, *self._items])
            cut = (*random.choice(self._items), 1) if random.random() < 0.3 else None
            clock, raw = self._clocks[client], said.encode()
            made = hostile(client, clock, part(4, bytes([len(raw)]) + raw, *beside), deletes=cut)
            length = len(said.encode("utf-16-le")) // 2
            self._items += [(client, clock + offset) for offset in range(length)]
            self._clocks[client] += length
        return signed(self._writers[client], self.name, made, random.getrandbits(32))


def signed(peer: Peer, name: str, made: bytes, at_ms: int = 1_000) -> bytes:
    return seal(peer.entity.key, peer.id, name, at_ms, made).raw


def shown(text: Text, name: str) -> set[str]:
    """Return what all peers show, as they have read on and after a start."""
    found = {peer.engine.texts.read(name) for peer in text.all}
    for peer in text.all:
        peer.engine.texts.forget()
    return found | {peer.engine.texts.read(name) for peer in text.all}


@pytest.mark.parametrize("seed", range(24))
def test_what_claims_false_neighbours_is_shown_alike_or_nowhere(seed: int) -> None:
    random = Random(seed)
    text = Text("bob", "carol", "dave", body=random.choice(("abc", f"a{SMILE}b", "one two")))
    text.share("room_members")
    forger = Forger(text, random)
    made = [forger.next() for _ in range(random.randint(8, 30))]
    dave = text.all[3]
    text.edit(dave, random.randint(0, 2), 0, "D")
    made += [out.payload for out in dave.published() if unpack(out.payload).doc_id == forger.name]
    for peer in text.all:
        order = random.sample(made, len(made))
        for start in range(0, len(order), 3):
            peer.engine.intake.take([Arrival(raw) for raw in order[start : start + 3]])
            if random.random() < 0.4:
                peer.engine.texts.read(forger.name)
        peer.engine.intake.take([Arrival(raw) for raw in made])
    found = shown(text, forger.name)
    assert len(found) == 1
    assert "D" in found.pop()


def test_what_only_deletes_is_read_in_full_however_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "MAX_DELETE_ONLY", 10)
    text = Text("bob", body="0123456789" * 6)
    alice, bob = text.all
    text.share("room_members")
    name = content_document(text.room, text.content_id())
    made = [signed(bob, name, hostile(bob.client, 0, deletes=(alice.client, at, 1))) for at in range(50)]
    for peer in text.all:
        peer.engine.intake.take([Arrival(raw) for raw in made])
    assert shown(text, name) == {"0123456789"}
    # and whoever was away is told of all of them, if it takes some questions
    number, had = alice.engine.documents.open(name).row.number, set[bytes]()
    for _ in range(200):
        had |= set(alice.store.log_after(number, {}, 1 << 20)[0])
    assert set(made) <= had


def test_one_range_within_another_deletes_alike_whichever_came_first() -> None:
    text = Text("bob", body=f"ab{SMILE}c")
    alice, bob = text.all
    text.share("room_members")
    name = content_document(text.room, text.content_id())
    wide = signed(bob, name, hostile(bob.client, 0, deletes=(alice.client, 0, 3)))  # with half of the face
    narrow = signed(bob, name, hostile(bob.client, 0, deletes=(alice.client, 0, 1)))
    alice.engine.intake.take([Arrival(wide), Arrival(narrow)])
    bob.engine.intake.take([Arrival(narrow), Arrival(wide)])
    assert shown(text, name) == {f"{SMILE}c"}


def test_what_a_left_out_update_deletes_is_still_there_to_be_deleted() -> None:
    text = Text("bob", "carol", body="abc")
    alice, bob, carol = text.all
    text.share("explicit", bob)
    name = content_document(text.room, text.content_id())
    # not counted while carol is no editor, nor part of a text; what only deletes says the same later, and counts
    other = client_id(carol.id, 9)
    spoilt = signed(carol, name, hostile(other, 0, part(8, b"\1\x7e", (alice.client, 0)), deletes=(alice.client, 1, 1)))
    text.share(None, bob, carol)
    clean = signed(bob, name, hostile(bob.client, 0, deletes=(alice.client, 1, 1)))
    alice.engine.intake.take([Arrival(spoilt), Arrival(clean)])
    bob.engine.intake.take([Arrival(clean), Arrival(spoilt)])
    carol.engine.intake.take([Arrival(clean)])
    assert shown(text, name) == {"ac"}


def test_many_who_spoil_a_text_keep_nobody_from_reading_it() -> None:
    names = [f"e{number}" for number in range(20)]
    text = Text("bob", *names, body="abc")
    text.share("room_members")
    name = content_document(text.room, text.content_id())
    alice = text.alice
    made: list[bytes] = []
    for peer in text.all[2:]:
        made.append(signed(peer, name, hostile(peer.client, 0, deletes=(alice.client, 0, 1))))
        made.append(signed(peer, name, hostile(peer.client, 0, part(8, b"\1\x7e", (alice.client, 0)))))
    for peer in text.all[:2]:
        peer.engine.intake.take([Arrival(raw) for raw in made])
        assert peer.engine.texts.read(name) == "abc"


def test_a_text_that_is_too_long_is_shown_nowhere_and_takes_nothing_from_a_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = Text("bob")
    alice, bob = text.all
    other = alice.do("message.send", room_id=text.room, body="x")["ref_id"]
    alice.do("mutable.update", room_id=text.room, ref_id=other, body="another text")
    text.share("room_members")
    name = content_document(text.room, text.content_id())
    monkeypatch.setattr(text_replay, "MAX_TEXT_LOG_BYTES", 6_000)
    made: list[bytes] = []
    for number in range(8):
        client = client_id(bob.id, 7_000 + number)
        made.append(signed(bob, name, hostile(client, 0, part(4, b"\x64" + b"x" * 100, None, (alice.client, 0)))))
        said = b"\xe8\x07" + b"y" * 1_000
        made.append(signed(bob, name, hostile(client, 100, part(4, said, (client, 99), (alice.client, 0)))))
    for peer, order in ((alice, made), (bob, made[::-1])):
        peer.engine.intake.take([Arrival(raw) for raw in order])
    text.spread()
    for peer in text.all:
        bodies: dict[str, Any] = {
            ref["ref_id"]: ref["body"] for ref in peer.do("timeline.list", room_id=text.room)["refs"]
        }
        assert bodies == {text.ref: None, other: "another text"}
