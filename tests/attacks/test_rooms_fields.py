"""A member writes values of every shape into every field: what is taken can be shown by every face, and nothing stops.

Two ways in: over the wire, where the schema refuses what can't be shown, and in a store that an earlier version filled.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from attacks.kit.odd_fields import GOOD_TIME, NO_CONTENT, ODD, OddMember, odd
from sublet.cli.chat.lines import message_lines
from sublet.cli.rendering.entity_names import EntityNames
from sublet.daemon.api.conversations import Conversation
from sublet.daemon.api.room_files import FileView
from sublet.daemon.api.room_marks import MessageVersion
from sublet.daemon.api.room_messages import ChannelView, MessageView
from sublet.daemon.api.room_people import ProfileView, ReadingView
from sublet.daemon.api.room_presence import PresenceView
from sublet.daemon.rooms.views import conversation_of, detail_of, message_view, placed_message, room_views
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.builtins.search import _find, _read_some
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.reading import authorise
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent import ref_shape
from sublet.protocol.ezagent.content import canonical, content_object, parse_content, sign_content
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import own_ref_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.encode import Nested, Transaction
from sublet.protocol.ezagent.yjs.update import Deletion
from support.rooms import NOW_MS, Peer, peers, shared_room

ALL = (*BUILT_INS, *EXTENSIONS)
SHARD = "2026-11"


def a_room() -> tuple[Peer, Peer, str, OddMember]:
    """Return an honest reader, a hostile owner beside them, and a room of both with messages of both."""
    reader, mallory = peers("reader", "mallory", declarations=ALL)
    room = shared_room(mallory, reader)
    mallory.do("room.invite", room_id=room, entity=reader.id, role="admin")
    reader.hear(mallory.published())
    for body in ("one", "two"):
        reader.do("message.send", room_id=room, body=body, ext={"channels": ["work"]})
    mallory.hear(reader.published())
    odd_member = OddMember(mallory, room)
    return reader, mallory, room, odd_member


def shown_everywhere(reader: Peer, room: str) -> list[str | None]:
    """Show a room by all faces, as JSON and as lines of a terminal; return what its messages say.

    Raises:
        Exception: a face can't; errors that tell a user what is wrong are none of these.
    """
    names = EntityNames(reader.id, {})
    views: list[MessageView] = []

    def messages(found: Any) -> None:
        for ref in found["refs"]:
            view = message_view(ref, lambda _: True)
            views.append(view)
            placed_message(ref, reader.id, lambda _: True).model_dump_json()
            view.model_dump_json()
            message_lines(view, names, {}, 80)
            told(partial(versions, ref["ref_id"]))
            for operation in ("collab.get_acl", "annotation.list", "crossroom.preview"):
                told(partial(reader.do, operation, room_id=room, ref_id=ref["ref_id"]))

    def versions(ref_id: str) -> None:
        for one in reader.do("mutable.versions", room_id=room, ref_id=ref_id):
            MessageVersion(body=one["body_snapshot"], at=one["edited_at"]).model_dump_json()

    def thread(root: str) -> None:
        messages(reader.do("threads.list", room_id=room, root=root))

    def profile(entity: str) -> None:
        ProfileView.model_validate(reader.do("profile.get", entity=entity)).model_dump_json()

    page = reader.do("timeline.list", room_id=room, limit=200)
    messages(page)
    said = [ref.get("body") for ref in page["refs"]]
    messages(reader.do("threads.list", room_id=room))
    for root in [ref["ref_id"] for ref in page["refs"]]:
        told(partial(thread, root))
    messages(reader.do("channels.refs", channel="work"))
    for one in reader.do("channels.list"):
        ChannelView.model_validate(one).model_dump_json()
    for view in room_views(reader.do("room.list")):
        view.model_dump_json()
    found = reader.do("room.get", room_id=room)
    detail_of(found).model_dump_json()
    conversation: Conversation = conversation_of(found, reader.id, 0)
    conversation.model_dump_json()
    ReadingView.model_validate(reader.do("receipts.summary", room_id=room)).model_dump_json()
    for one in reader.do("media.list", room_id=room):
        FileView.model_validate(one).model_dump_json()
    for one in reader.do("presence.list", room_id=room):
        PresenceView.model_validate(one).model_dump_json()
    for entity in reader.engine.rooms.state(room).members():
        told(partial(profile, entity))
    reader.do("watch.list")
    _read_some(reader.engine.operating, reader.id, [room], 200)
    found_words = _find(OperationContext(reader.engine.operating, reader.id), ["one"], None, 20, None, True)
    messages({"refs": found_words["refs"]})
    reader.do("discovery.search", query="a")
    assert reader.kinds()
    return said


def told(show: Callable[[], object]) -> None:
    """Let a face tell a user why it shows nothing; anything else that it raises is a fault."""
    with suppress(SubletError):
        show()


def honest_goes_on(reader: Peer, room: str) -> None:
    """Show everything, say something more, and see it last."""
    shown_everywhere(reader, room)
    reader.do("message.send", room_id=room, body="still here", ext={"channels": ["work"]})
    assert shown_everywhere(reader, room)[-1] == "still here"


CORE = ("ref_id", "author", "content_type", "content_id", "created_at", "status", "signature")


@pytest.mark.parametrize("value", ["soon", "", "9999-12-31T23:59:59-23:59", "2026-11-29", 7, b"x", Nested()])
def test_a_time_that_is_none_is_refused_where_it_comes_in(value: Any) -> None:
    reader, _, room, mallory = a_room()
    reader.engine.intake.take([mallory.ref({"created_at": value})])
    assert reader.refused() == {"wrong_shape": 1}
    honest_goes_on(reader, room)


@pytest.mark.parametrize("name", [*CORE, "room_id", "shard_id", "body", "content", "redacted", "replies", "x"])
def test_a_field_of_another_shape_or_name_is_refused(name: str) -> None:
    reader, _, room, mallory = a_room()
    reader.engine.intake.take([mallory.ref({name: {"a": b"x"}})])
    assert sum(reader.refused().values()) == 1
    honest_goes_on(reader, room)


def test_nobody_writes_in_anothers_name_by_writing_a_field_twice() -> None:
    reader, peer, room, mallory = a_room()
    name = doc_id("index", room_id=room, shard_id=SHARD)

    def write(transaction: Transaction) -> None:
        here = transaction._struct(7, None, "timeline", None, 1)
        transaction._body.append(1)
        fields = {
            "author": reader.id,
            "ref_id": own_ref_id(NOW_MS, room, peer.id, 9),
            "content_type": "immutable",
            "content_id": NO_CONTENT,
            "created_at": GOOD_TIME,
            "status": "active",
        }
        for key, value in [*fields.items(), ("author", peer.id)]:
            transaction._set((peer.client, here), key, None, value)

    reader.engine.intake.take([mallory.update(name, write)])
    assert reader.refused() == {"wrong_shape": 1}
    honest_goes_on(reader, room)


def test_deleting_the_fields_of_a_ref_leaves_a_ref() -> None:
    reader, peer, room, mallory = a_room()
    name = doc_id("index", room_id=room, shard_id=SHARD)
    reader.engine.intake.take([mallory.ref()])
    mallory.taken(name, reader)
    reader.engine.intake.take([mallory.deletes(name, Deletion(peer.client, clock, 1)) for clock in range(1, 8)])
    assert reader.refused() == {}
    refs = reader.do("timeline.list", room_id=room)["refs"]
    assert {ref["created_at"] for ref in refs if ref["author"] == peer.id} == {GOOD_TIME}
    honest_goes_on(reader, room)


@pytest.mark.parametrize("field", ["status", "content_type", "content_id", "signature", "room_id", "body", "x"])
def test_a_later_write_has_the_shape_that_a_first_one_has(field: str) -> None:
    reader, peer, room, mallory = a_room()
    name = doc_id("index", room_id=room, shard_id=SHARD)
    reader.engine.intake.take([mallory.ref()])
    for value in ("x" * 300, b"x", "a\nb", ["a"], Nested()):
        mallory.taken(name, reader)
        above = (peer.client, 0)
        before = sum(reader.refused().values())
        reader.engine.intake.take([mallory.keys(name, "timeline", {(field,): value}, above)])
        assert sum(reader.refused().values()) == before + 1
    honest_goes_on(reader, room)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_accepted_is_shown_by_every_face(seed: int) -> None:
    """Property: whatever comes in, each face shows what was taken, and honest messages go on."""
    choice = random.Random(seed)
    reader, peer, room, mallory = a_room()
    documents = map_documents(room, peer, reader)
    index = doc_id("index", room_id=room, shard_id=SHARD)
    for _ in range(60):
        kind = choice.random()
        if kind < 0.5:
            mallory.taken(index, reader)
            names = choice.sample([*CORE, *EXT], choice.randint(1, 3))
            arrival = mallory.ref({name: choice.choice([odd(choice), ...]) for name in names})
            reader.engine.intake.take([arrival])
            nodes = [node for node in reader.engine.documents.open(index).elements.chain if node.signer == peer.id]
            if nodes and kind < 0.2:
                mallory.taken(index, reader)
                field = choice.choice([*CORE, *EXT])
                above = choice.choice(nodes).id
                reader.engine.intake.take([mallory.keys(index, "timeline", {(field,): odd(choice)}, above)])
        else:
            name, root, paths = choice.choice(documents)
            mallory.taken(name, reader)
            path = choice.choice(paths)
            reader.engine.intake.take([mallory.keys(name, root, {path: odd(choice)})])
    honest_goes_on(reader, room)


EXT = (
    "ext.reply_to",
    "ext.thread",
    "ext.channels",
    "ext.media",
    "ext.reactions",
    "ext.watch",
    "ext.hops",
    "ext.control",
    "ext.asks",
    "ext.other",
)


def map_documents(room: str, peer: Peer, reader: Peer) -> list[tuple[str, str, list[tuple[str, ...]]]]:
    """Return documents of each kind that a member writes, with their roots and fields."""
    digest = "0" * 64
    of_config: list[tuple[str, ...]] = [
        *((one,) for one in ("name", "timeline", "relays", "encryption", "avatar_hash", "enabled_extensions", "x")),
        ("membership", "policy"),
        ("membership", "members", reader.id),
        ("membership", "knocks", peer.id),
        ("power_levels", "admin"),
        ("power_levels", "users", peer.id),
        ("ext", "channels", "hints"),
        ("ext", "moderation", "power_level"),
        ("ext", "watch", peer.id),
    ]
    return [
        (doc_id("config", room_id=room), "config", of_config),
        (
            doc_id("ext", room_id=room, ext_id="read-receipts"),
            "read-receipts",
            [(peer.id,), *((peer.id, one) for one in ("last_read_ref", "last_read_window", "updated_at"))],
        ),
        (
            doc_id("blob_ref", room_id=room, hash=digest),
            "blob_ref",
            [(one,) for one in ("filename", "mime_type", "size_bytes", "blob_hash")],
        ),
        (
            doc_id("profile", entity_id=peer.id),
            "profile",
            [(one,) for one in ("display_name", "avatar_hash", "frontmatter", "capabilities", "updated_at", "x")],
        ),
    ]


def test_a_ref_that_an_earlier_version_took_is_read_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _, room, mallory = a_room()
    other = shared_room(reader)
    reader.do("message.send", room_id=other, body="elsewhere", ext={"channels": ["work"]})
    index = doc_id("index", room_id=room, shard_id=SHARD)
    with monkeypatch.context() as earlier:
        earlier.setattr(authorise, "misfit", lambda fields: None)
        earlier.setattr(authorise, "is_json", lambda value: True)
        for name in ("content_type", "created_at", "status", "signature", "room_id", "shard_id", "body", *EXT):
            for value in ODD:
                mallory.taken(index, reader)
                reader.engine.intake.take([mallory.ref({name: value})])
        assert reader.refused() == {}
    for one in (room, other):
        honest_goes_on(reader, one)
    reader.engine.documents.forget()  # as after a restart
    for one in (room, other):
        honest_goes_on(reader, one)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("created_at", "soon"),
        ("created_at", "x" * 90),
        ("media_refs", [{}]),
        ("media_refs", [7]),
        ("signature", "x" * 999),
    ],
)
def test_a_content_of_another_shape_is_refused(name: str, value: Any) -> None:
    _, peer, _, _ = a_room()
    content = content_object(peer.id, "hello", "text/plain", GOOD_TIME, [])
    good = sign_content(content, peer.entity.key)
    assert parse_content(canonical(good))
    bad = sign_content({**content, name: value}, peer.entity.key) if name != "signature" else {**good, name: value}
    with pytest.raises(Refused):
        parse_content(canonical(bad))


def test_the_shape_of_a_ref_is_the_one_that_is_written() -> None:
    """What our own writers make fits, and whatever is mended fits."""
    reader, _, room, _ = a_room()
    for ref in reader.do("timeline.list", room_id=room)["refs"]:
        assert all(ref_shape.fits(name, ref[name]) for name in CORE)
    for name in (*CORE, *EXT, "room_id"):
        for value in ODD:
            mended = ref_shape.mended({name: value}, "7" + "Z" * 25, "@a:b")
            assert ref_shape.misfit({**mended, "ref_id": own_ref_id(NOW_MS, room, "@a:b", 1)}) is None
