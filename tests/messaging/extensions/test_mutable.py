"""EXT-01: who may edit a message, what everybody reads then, and what it said before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.extensions.mutable import EDITED_AT, MAX_VERSIONS, MUTABLES, content_document
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import own_content_id
from sublet.protocol.ezagent.room import seen
from support.members import SECONDS, member
from support.memory_network import MemoryHub
from support.pycrdt_text import PycrdtTexts
from support.ref_signatures import verify_ref
from support.rooms import NOW_MS, Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, MUTABLES)


def room_of_two() -> tuple[Peer, Peer, str, str]:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="hello wrld", format="text/markdown")["ref_id"]
    bob.hear(alice.published())
    return alice, bob, room, ref


def shown(peer: Peer, room: str, ref: str) -> dict[str, Any]:
    found: dict[str, Any] = peer.do("timeline.get_ref", room_id=room, ref_id=ref)
    return found


def edit(peer: Peer, room: str, ref: str, body: str, **more: str) -> str:
    return str(peer.do("mutable.update", room_id=room, ref_id=ref, body=body, **more)["content_id"])


def told(peer: Peer) -> list[object]:
    return [event.data["ref_id"] for event in peer.engine.events.since(0) if event.kind == "message.edited"]


def test_an_edit_reaches_everybody_and_what_was_said_before_is_kept() -> None:
    alice, bob, room, ref = room_of_two()
    content = edit(alice, room, ref, "hello world")
    again = edit(alice, room, ref, "hello, whole \U0001f30d world", format="text/plain")
    assert content == again
    bob.hear(alice.published())
    for peer in (alice, bob):
        found = shown(peer, room, ref)
        assert (found["body"], found["status"]) == ("hello, whole \U0001f30d world", "edited")
        assert (found["content_type"], found["content_id"]) == ("mutable", content)
        assert (found["content"]["type"], found["content"]["format"]) == ("mutable", "text/plain")
        verify_ref(room, found, peer.engine.keyring.keys(alice.id) or ())
        assert told(peer) == [ref, ref]
        versions = peer.do("mutable.versions", room_id=room, ref_id=ref)
        assert [one["body_snapshot"] for one in versions] == ["hello wrld", "hello world", found["body"]]
        assert all(one[EDITED_AT] for one in versions)
        assert peer.bodies(room) == [found["body"]]


def test_an_edit_writes_only_what_differs() -> None:
    alice, _, room, ref = room_of_two()
    edit(alice, room, ref, "x" * 20_000)
    alice.published()
    edit(alice, room, ref, "x" * 10_000 + "y" + "x" * 10_000)
    sizes = {item.key.split("/")[2]: len(item.payload) for item in alice.published()}
    assert sizes["content"] < 600


def test_nobody_edits_the_message_of_another() -> None:
    alice, bob, room, ref = room_of_two()
    with pytest.raises(SubletError, match="only its author"):
        edit(bob, room, ref, "I owe Bob money")
    content = edit(alice, room, ref, "hello world")
    bob.hear(alice.published())
    name = content_document(room, content)
    with pytest.raises(SubletError, match="only its author"):
        bob.engine.texts.replace(bob.id, name, "I owe Bob money", {EDITED_AT: "now"})
    # A daemon that lets its entity do so all the same.
    forged = PycrdtTexts().open("body", "content")
    payload = forged.edit(bob.entity.client, 0, 0, "I owe Bob money. ", {EDITED_AT: "now", "format": "text/html"})
    bob.engine.writing.take(bob.id, name, payload)
    bob.engine.commit()
    assert alice.hear(bob.published()).accepted == 1
    edit(alice, room, ref, "hello whole world")
    bob.hear(alice.published())
    for peer in (alice, bob):
        found = shown(peer, room, ref)
        assert (found["body"], found["content"]["format"]) == ("hello whole world", "text/markdown")
        assert len(peer.do("mutable.versions", room_id=room, ref_id=ref)) == 3


def test_a_ref_can_t_name_the_content_of_another() -> None:
    alice, bob, room, ref = room_of_two()
    content = edit(alice, room, ref, "alice's words")
    bob.hear(alice.published())
    own = bob.do("message.send", room_id=room, body="mine")["ref_id"]
    [row] = bob.store.documents(room, "index")
    fields = [("content_type", "mutable"), ("content_id", content), ("status", "edited")]
    bob.engine.writing.set_fields(bob.id, row.doc_id, [(own, (name,), value) for name, value in fields])
    bob.engine.commit()
    alice.hear(bob.published())
    assert shown(alice, room, own).get("body") is None


def test_what_was_deleted_or_says_nothing_is_not_edited() -> None:
    alice, _, room, ref = room_of_two()
    for body in ("", "x" * (65 << 10), "\ud800"):
        with pytest.raises(SubletError):
            edit(alice, room, ref, body)
    with pytest.raises(SubletError, match="format"):
        edit(alice, room, ref, "fine", format="text/x-shell")
    assert shown(alice, room, ref)["status"] == "active"
    edit(alice, room, ref, "fine")
    alice.do("message.delete", room_id=room, ref_id=ref)
    with pytest.raises(SubletError, match="deleted"):
        edit(alice, room, ref, "back again")
    with pytest.raises(SubletError, match="no text"):
        alice.do("mutable.versions", room_id=room, ref_id=ref)


def test_of_many_versions_the_last_are_told() -> None:
    alice, _, room, ref = room_of_two()
    for number in range(MAX_VERSIONS + 5):
        edit(alice, room, ref, f"version {number}")
    versions = alice.do("mutable.versions", room_id=room, ref_id=ref)
    assert len(versions) == MAX_VERSIONS
    assert versions[-1]["body_snapshot"] == f"version {MAX_VERSIONS + 4}"


def test_edits_of_two_devices_at_once_are_both_there() -> None:
    alice, bob, room, ref = room_of_two()
    edit(alice, room, ref, "one two three")
    phone = Peer("alice", 3000, declarations=WITH)
    phone.meet(bob)
    phone.engine.keyring.learn(alice.entity.record.encode())
    phone.catch_up(alice, room)
    name = content_document(room, shown(alice, room, ref)["content_id"])
    sent = [alice.store.envelope(seq) for seq in range(1, alice.store.last_seq() + 1)]
    phone.engine.intake.take([Arrival(raw) for raw in sent])
    assert phone.engine.texts.read(name) == "one two three"
    alice.published()
    edit(alice, room, ref, "ONE two three")
    edit(phone, room, ref, "one two THREE")
    here, there = alice.published(), phone.published()
    alice.hear(there)
    phone.hear(here)
    assert shown(alice, room, ref)["body"] == shown(phone, room, ref)["body"] == "ONE two THREE"


def test_the_id_of_content_says_whose_it_is_and_is_not_used_twice() -> None:
    alice, _, room, ref = room_of_two()
    other = alice.do("message.send", room_id=room, body="second")["ref_id"]
    first, second = edit(alice, room, ref, "a"), edit(alice, room, other, "b")
    assert first == own_content_id(NOW_MS, room, alice.id, 0)
    assert second == own_content_id(NOW_MS, room, alice.id, 1)
    assert alice.bodies(room) == ["a", "b"]


def test_who_watches_a_message_hears_that_it_was_edited() -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, *EXTENSIONS))
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="draft")["ref_id"]
    bob.hear(alice.published())
    bob.do("watch.set", room_id=room, ref_id=ref)
    alice.hear(bob.published())
    edit(alice, room, ref, "final")
    bob.hear(alice.published())
    [event] = [event for event in bob.engine.events.since(0) if event.kind == "watch.ref_content_edited"]
    assert (event.data["watcher"], event.data["watched_ref"]) == (bob.id, ref)


def test_a_room_that_does_not_offer_it_refuses() -> None:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    alice.do("room.update_config", room_id=room, changes={"enabled_extensions": []})
    ref = alice.do("message.send", room_id=room, body="hello")["ref_id"]
    with pytest.raises(SubletError, match="mutable is switched off"):
        edit(alice, room, ref, "other")


@pytest.mark.anyio
async def test_who_joins_later_reads_the_edited_message(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=(MUTABLES,)) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        ref = (await alice.bus.message.send(room_id=room, body="before"))["ref_id"]
        await alice.bus.mutable.update(room_id=room, ref_id=ref, body="after")
        async with member("bob", 2, hub, tmp_path, more=(MUTABLES,)) as bob:
            await alice.bus.room.invite(room_id=room, entity=bob.id)
            with anyio.fail_after(SECONDS):
                while await bob.bodies(room) != ["after"]:
                    await anyio.sleep(0.05)


def test_who_has_edited_very_many_messages_is_removed_and_what_was_seen_of_them_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seen, "MAX_PAIRS_BY_NAME", 8)
    alice, bob, room, _ = room_of_two()
    refs = [str(bob.do("message.send", room_id=room, body=f"{number}")["ref_id"]) for number in range(20)]
    for number, ref in enumerate(refs):
        edit(bob, room, ref, f"edited {number}")
    alice.hear(bob.published())
    alice.do("room.kick", room_id=room, entity=bob.id)
    edit(bob, room, refs[3], "behind it")
    bob.do("message.send", room_id=room, body="behind it as well")
    alice.hear(bob.published())
    bob.hear(alice.published())
    for peer in (alice, bob):
        assert peer.engine.rooms.state(room).role(bob.id) is None
        [removal] = peer.engine.rooms.state(room).entities[bob.id].removals
        assert isinstance(removal.seen, seen.PackedSeen)
    assert alice.bodies(room) == ["hello wrld", *(f"edited {number}" for number in range(20))]
    alice.do("room.invite", room_id=room, entity=bob.id)  # tells in the same way what was written outside
    assert alice.bodies(room)[4] == "edited 3"
