"""EXT-02: who may write into a text of several, and that what they write at once is all there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.extensions.collab import COLLABORATIVE
from sublet.messaging.extensions.mutable import EDITED_AT, MUTABLES, content_document
from sublet.messaging.extensions.reply_to import REPLY_TO
from sublet.messaging.extensions.watch import WATCHES
from sublet.messaging.texts import text_replay, texts
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.update import Update
from sublet.protocol.ezagent.yjs.writer import write_number
from support.members import SECONDS, member
from support.memory_network import MemoryHub
from support.pycrdt_text import PycrdtTexts
from support.rooms import Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, MUTABLES, COLLABORATIVE)


def everybody_hears(members: list[Peer]) -> None:
    """Let everybody hear what everybody has written, until nobody says anything more."""
    while sent := [(peer, out) for peer in members if (out := peer.published())]:
        for writer, out in sent:
            for peer in members:
                if peer is not writer:
                    peer.hear(out)


class Text:
    """One message of Alice in a room of several."""

    def __init__(self, *names: str, body: str = "one two three") -> None:
        self.all = peers("alice", *names, declarations=WITH)
        self.alice = self.all[0]
        self.room = shared_room(*self.all)
        self.ref = self.alice.do("message.send", room_id=self.room, body=body)["ref_id"]
        self.spread()

    def spread(self) -> None:
        """Let everybody hear what everybody has written, until nobody says anything more."""
        everybody_hears(self.all)

    def share(self, mode: str | None = None, *editors: Peer) -> dict[str, Any]:
        named = [one.id for one in editors] if editors else None
        found: dict[str, Any] = self.alice.do(
            "collab.update_acl", room_id=self.room, ref_id=self.ref, mode=mode, editors=named
        )
        self.spread()
        return found

    def edit(self, peer: Peer, index: int, delete: int = 0, insert: str = "", **more: Any) -> None:
        peer.do("collab.edit", room_id=self.room, ref_id=self.ref, index=index, delete=delete, insert=insert, **more)

    def read(self, peer: Peer) -> str:
        found = peer.do("timeline.get_ref", room_id=self.room, ref_id=self.ref)
        assert found["body"] == peer.do("collab.connect", room_id=self.room, ref_id=self.ref)["text"]
        return str(found["body"])

    def content_id(self) -> str:
        return str(self.alice.do("timeline.get_ref", room_id=self.room, ref_id=self.ref)["content_id"])

    def force(self, peer: Peer, insert: str) -> None:
        """Write at the beginning as a daemon does that asks no hook."""
        name = content_document(self.room, self.content_id())
        text = PycrdtTexts().open("body", "content")
        for raw in peer.store.log_after(peer.engine.documents.open(name).row.number, {}, 1 << 30)[0]:
            text.apply(unpack(raw).payload)
        peer.engine.writing.take(peer.id, name, text.edit(peer.entity.client, 0, 0, insert, {EDITED_AT: "now"}))
        peer.engine.commit()


def test_editors_write_at_once_and_all_of_it_is_there() -> None:
    text = Text("bob", "carol")
    alice, bob, carol = text.all
    shared = text.share("explicit", bob, carol)
    assert (shared["owner"], shared["mode"], shared["editors"]) == (alice.id, "explicit", [bob.id, carol.id])
    assert bob.do("collab.get_acl", room_id=text.room, ref_id=text.ref) == shared
    assert bob.do("timeline.get_ref", room_id=text.room, ref_id=text.ref)["content_type"] == "collab"
    text.edit(alice, 0, 3, "1")
    text.edit(bob, 4, 3, "2", expected="two")
    text.edit(carol, 13, 0, "!")
    text.spread()
    assert [text.read(peer) for peer in text.all] == ["1 2 three!"] * 3
    told = [event.data for event in alice.engine.events.since(0) if event.kind == "message.edited"]
    assert {event["by"] for event in told if "by" in event} == {bob.id, carol.id}
    assert all(event["ref_id"] == text.ref for event in told)


def test_of_an_edit_in_several_places_by_its_author_everybody_is_told_once() -> None:
    text = Text("bob")
    alice, bob = text.all
    text.share("explicit", bob)
    text.spread()
    place = {"room_id": text.room, "ref_id": text.ref}
    alice.do("collab.patch", **place, edits=[(0, 3, "1"), (8, 5, "3")], base="one two three")
    text.spread()
    for peer in text.all:
        assert peer.kinds().count("message.edited") == 1
        assert peer.do("timeline.get_ref", **place)["status"] == "edited"


def test_several_places_are_edited_at_once_where_the_text_is_the_one_that_was_read() -> None:
    text = Text("bob")
    alice, bob = text.all
    text.share("explicit", bob)
    place = {"room_id": text.room, "ref_id": text.ref}
    edits = [(0, 3, "1"), (8, 5, "3"), (13, 0, "!")]
    assert bob.do("collab.patch", **place, edits=edits, base="one two three")["text"] == "1 two 3!"
    text.spread()
    assert [text.read(peer) for peer in text.all] == ["1 two 3!"] * 2
    with pytest.raises(SubletError, match="another one by now"):
        alice.do("collab.patch", **place, edits=[(0, 1, "uno")], base="one two three")
    for wrong in [[(4, 3, "x"), (0, 1, "y")], [(0, 3, "x"), (2, 1, "y")], [(7, 2, "")], [(0, 0, "")], []]:
        with pytest.raises(SubletError) as refused:
            alice.do("collab.patch", **place, edits=wrong, base="1 two 3!")
        assert refused.value.code == "INVALID_ARGUMENT"
    with pytest.raises(SubletError, match="bytes"):
        alice.do("collab.patch", **place, edits=[(0, 0, "\N{SNOWMAN}" * 30_000)], base="1 two 3!")
    assert text.read(alice) == "1 two 3!"


def test_who_is_not_let_writes_nothing_that_counts() -> None:
    text = Text("bob", "carol")
    _, bob, carol = text.all
    with pytest.raises(SubletError, match="can't be written by several"):
        text.edit(bob, 0, 3, "X")
    text.share("explicit", bob)
    with pytest.raises(SubletError):
        text.edit(carol, 0, 3, "X")
    with pytest.raises(SubletError):
        carol.do("mutable.update", room_id=text.room, ref_id=text.ref, body="X")
    with pytest.raises(SubletError, match="only its author decides"):
        bob.do("collab.update_acl", room_id=text.room, ref_id=text.ref, mode="room_members")
    text.force(carol, "CAROL ")
    text.spread()
    text.edit(bob, 0, 0, "bob ")  # beside what does not count
    text.spread()
    assert [text.read(peer) for peer in text.all] == ["bob one two three"] * 3


def test_whoever_floods_a_text_takes_it_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_replay, "MAX_CLIENT_BYTES", 5_000)
    monkeypatch.setattr(texts, "_ENVELOPE_BYTES", 500)
    text = Text("bob", "carol", "dave")
    alice, bob, carol, dave = text.all
    text.share("explicit", bob, carol)
    for number in range(30):  # an editor and one who is none, each more than is read of one client
        text.force(bob, f"b{number} ")
        text.force(dave, f"d{number} ")
    text.spread()
    text.edit(carol, 0, 0, "carol ")
    text.edit(alice, 0, 0, "alice ")
    text.spread()
    alice.engine.texts.forget()  # read anew, as after a restart, it is the same
    shown = {text.read(peer) for peer in text.all}
    assert len(shown) == 1
    (found,) = shown
    assert {"alice", "carol", "b0", "three"} <= set(found.split())
    assert not {"b29", "d0"} & set(found.split())
    with pytest.raises(SubletError, match="too often"):
        text.edit(bob, 0, 0, "b")
    assert text.read(bob) == found
    for _ in range(30):  # whatever one is let write, everybody reads
        with suppress(SubletError):
            text.edit(carol, 0, 0, "c")
    text.spread()
    shown = {text.read(peer) for peer in text.all}
    assert len(shown) == 1
    assert 5 < shown.pop().count("c") < 30


def test_what_only_deletes_holds_nothing_back_from_who_catches_up() -> None:
    text = Text("bob")
    alice, bob = text.all
    text.share("room_members")
    for number in range(5):
        text.edit(alice, 0, 0, f"{number} ")
    name = content_document(text.room, text.content_id())
    (alice_client,) = alice.engine.documents.open(name).clients
    for clock in range(5):
        deletes = bytearray(b"\0\1")
        for value in (alice_client, 1, clock, 1):
            write_number(deletes, value)
        bob.engine.writing.take(bob.id, name, bytes(deletes))
        text.edit(alice, 0, 0, "more ")
    bob.engine.commit()
    text.spread()
    number, have, pages = alice.engine.documents.open(name).row.number, dict[int, int](), 0
    more, found = True, list[Update]()
    while more:
        page, more = alice.store.log_after(number, have, 700)
        assert page
        for raw in page:
            update = decode_update(unpack(raw).payload)
            found.append(update)
            if update.items:
                have[update.client] = update.end
        pages += 1
    assert pages > 3
    assert have[alice_client] == alice.engine.documents.open(name).next_clock(alice_client)
    assert [bool(update.items) for update in found[-2:]] == [False, False]
    assert text.read(alice) == text.read(bob)


def hostile(client: int, clock: int, *items: bytes, deletes: tuple[int, int, int] | None = None) -> bytes:
    """Return an update of a client, of items as they are encoded, each of them one clock long or as text."""
    out = bytearray()
    if items:
        for value in (1, len(items), client, clock):
            write_number(out, value)
        for item in items:
            out += item
    else:
        out.append(0)
    if deletes is None:
        out.append(0)
    else:
        for value in (1, deletes[0], 1, deletes[1], deletes[2]):
            write_number(out, value)
    return bytes(out)


def part(
    kind: int, content: bytes, origin: tuple[int, int] | None = None, right: tuple[int, int] | None = None
) -> bytes:
    """Return an encoded item of a text."""
    out = bytearray([kind | (128 if origin else 0) | (64 if right else 0)])
    for other in (origin, right):
        for value in other or ():
            write_number(out, value)
    if origin is None and right is None:
        out += b"\1\4body"
    return bytes(out) + content


SMILE = "\U0001f600"


@pytest.mark.parametrize("let", [True, False])
@pytest.mark.parametrize(
    "made",
    [
        lambda alice, bob: hostile(bob, 0, part(8, b"\1\x7e", (alice, 0))),  # a value in the text
        lambda alice, bob: hostile(bob, 0, part(7, b"\2", (alice, 0))),  # a text in the text
        lambda alice, bob: hostile(bob, 0, part(3, b"\1x", (alice, 0))),  # bytes in the text
        lambda alice, bob: hostile(bob, 0, part(6, b"\1b\4true", (alice, 0))),  # a format
        lambda alice, bob: hostile(bob, 0, part(4, b"\1x", (alice, 1))),  # between the halves of a character
        lambda alice, bob: hostile(bob, 0, part(4, b"\1x", None, (alice, 2))),
        lambda alice, bob: hostile(bob, 0, part(4, b"\1x", (alice, 0), (alice, 5))),  # beside a key of the map
        lambda alice, bob: hostile(bob, 0, part(4, b"\1x", (alice, 0)), deletes=(alice, 2, 1)),
        lambda alice, bob: hostile(bob, 0, deletes=(alice, 1, 1)),  # half of a character
        lambda alice, bob: hostile(
            bob, 0, part(4, b"\4" + SMILE.encode(), (alice, 0)), part(4, b"\1x", (bob, 0))
        ),  # within its own character
    ],
)
def test_what_no_client_of_a_text_writes_changes_nothing(let: bool, made: Callable[[int, int], bytes]) -> None:
    """The library would count positions in another way after these, or panic."""
    text = Text("bob", "carol", body=f"a{SMILE}b")
    alice, bob, _ = text.all
    text.share("room_members" if let else "owner_only")
    name = content_document(text.room, text.content_id())
    bob.engine.writing.take(bob.id, name, made(alice.client, bob.client))
    bob.engine.commit()
    text.spread()
    assert {text.read(peer) for peer in text.all} == {f"a{SMILE}b"}
    for index, delete, insert in ((2, 1, "c"), (1, 1, "\u00e9"), (3, 0, SMILE)):
        before = text.read(alice)
        text.edit(alice, index, delete, insert)
        text.spread()
        assert {text.read(peer) for peer in text.all} == {before[:index] + insert + before[index + delete :]}
    assert alice.do("mutable.versions", room_id=text.room, ref_id=text.ref)[-1]["body_snapshot"] == text.read(bob)


def test_whoever_is_taken_off_the_list_keeps_what_was_written_by_then() -> None:
    text = Text("bob", "carol")
    _, bob, carol = text.all
    text.share("explicit", bob, carol)
    text.edit(bob, 0, 0, "bob ")
    text.spread()
    text.share(None, carol)
    with pytest.raises(SubletError):
        text.edit(bob, 0, 0, "late ")
    text.force(bob, "LATE ")
    text.spread()
    assert [text.read(peer) for peer in text.all] == ["bob one two three"] * 3
    text.share(None, bob, carol)
    text.edit(bob, 0, 3, "Bob")
    text.spread()
    assert "Bob" in text.read(carol)


def test_all_members_may_where_they_are_let_and_a_mode_is_not_taken_back() -> None:
    text = Text("bob")
    alice, bob = text.all
    text.share("room_members")
    text.edit(bob, 0, 0, "hi ")
    text.spread()
    for mode in ("explicit", "owner_only"):
        with pytest.raises(SubletError, match="not taken back"):
            text.share(mode)
    assert text.read(alice) == "hi one two three"
    alice.do("room.kick", room_id=text.room, entity=bob.id)
    text.force(bob, "GONE ")
    text.spread()
    assert text.read(alice) == "hi one two three"


@pytest.mark.parametrize(
    "wrong",
    [
        {"index": -1, "insert": "x"},
        {"index": 14, "insert": "x"},
        {"index": 12, "delete": 5},
        {"index": 0},
        {"index": 0, "insert": "\ud800"},
        {"index": 0, "insert": "x" * (65 << 10)},
    ],
)
def test_what_is_no_edit_is_refused(wrong: dict[str, Any]) -> None:
    text = Text("bob")
    text.share("room_members")
    with pytest.raises(SubletError):
        text.edit(text.alice, **wrong)
    with pytest.raises(SubletError, match="another one"):
        text.edit(text.alice, 0, 3, "x", expected="two")
    assert text.read(text.alice) == "one two three"
    text.edit(text.alice, 0, 3, "1")
    assert text.read(text.alice) == "1 two three"


@pytest.mark.parametrize("seed", range(6))
def test_texts_are_the_same_everywhere_after_any_edits_in_any_order(seed: int) -> None:
    random = Random(seed)
    text = Text("bob", "carol", body="\u00e4\U0001f980 x")
    text.share("room_members")
    inboxes: dict[str, list[Any]] = {peer.name: [] for peer in text.all}
    for _ in range(40):
        peer = random.choice(text.all)
        if random.random() < 0.6:
            length = len(text.read(peer))
            index = random.randint(0, length)
            delete = random.randint(0, min(3, length - index))
            text.edit(peer, index, delete, random.choice(["a", "\u00df\U0001f30d", "\n", "long words "]))
            published = peer.published()
            for other in text.all:
                if other is not peer:
                    inboxes[other.name] += published
        else:
            random.shuffle(inboxes[peer.name])
            peer.hear(inboxes[peer.name])
            inboxes[peer.name] = []
    for peer in text.all:
        peer.hear(inboxes[peer.name])
    assert len({text.read(peer) for peer in text.all}) == 1


def test_who_watches_a_shared_text_hears_of_an_edit_by_another_editor() -> None:
    """D42: as of an edit by its author."""
    alice, bob, carol = everybody = peers("alice", "bob", "carol", declarations=(*WITH, REPLY_TO, WATCHES))
    room = shared_room(*everybody)
    ref = alice.do("message.send", room_id=room, body="one two")["ref_id"]
    alice.do("collab.update_acl", room_id=room, ref_id=ref, mode="room_members")
    everybody_hears(everybody)
    carol.do("watch.set", room_id=room, ref_id=ref)
    everybody_hears(everybody)
    bob.do("collab.edit", room_id=room, ref_id=ref, index=0, delete=3, insert="1")
    everybody_hears(everybody)
    told = [one.data for one in carol.engine.events.since(0) if one.kind == "watch.ref_content_edited"]
    assert [(one["watcher"], one["watched_ref"]) for one in told] == [(carol.id, ref)]
    assert "watch.ref_content_edited" not in bob.kinds(), "whoever edits is told nothing of it"


@pytest.mark.anyio
async def test_two_services_write_into_one_text(tmp_path: Path) -> None:
    hub, more = MemoryHub(), (MUTABLES, COLLABORATIVE)
    async with member("alice", 1, hub, tmp_path, more=more) as alice, member("bob", 2, hub, tmp_path, more=more) as bob:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        ref = (await alice.bus.message.send(room_id=room, body="a list:"))["ref_id"]
        await alice.bus.collab.update_acl(room_id=room, ref_id=ref, mode="explicit", editors=[bob.id])
        # Bob joins later, and so has to ask for text and list.
        await alice.bus.room.invite(room_id=room, entity=bob.id)
        with anyio.fail_after(SECONDS):
            while True:
                try:
                    if (await bob.bus.collab.connect(room_id=room, ref_id=ref))["may_edit"]:
                        break
                except SubletError:
                    pass
                await anyio.sleep(0.05)
            await bob.bus.collab.edit(room_id=room, ref_id=ref, index=7, insert=" milk")
            while await alice.bodies(room) != ["a list: milk"]:
                await anyio.sleep(0.05)
