"""The extensions in one registry: the names of the specification, one room with all of them, and a peer with none."""

from __future__ import annotations

from typing import Any

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration, Phase
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.schema.datatypes import Origin
from support.rooms import Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, *EXTENSIONS)
OPERATIONS = {
    "collab": {"collab.get_acl", "collab.update_acl", "collab.connect", "collab.edit", "collab.patch"},
    "mutable": {"mutable.update", "mutable.versions"},
    "reactions": {"reactions.add", "reactions.remove"},
    "reply-to": set(),
    "cross-room-ref": {"crossroom.preview"},
    "channels": {"channels.list", "channels.refs"},
    "threads": {"threads.list"},
    "watch": {"watch.set", "watch.unset", "watch.list"},
    "read-receipts": {"receipts.update", "receipts.summary"},
    "media": {"media.upload", "media.get", "media.list"},
    "drafts": {"drafts.save", "drafts.load"},
    "presence": {"presence.set", "presence.list"},
    "profile": {"profile.get", "profile.update", "profile.picture", "profile.set_picture", "discovery.search"},
}
"""Of ezagent 10.2."""
EVENTS = {
    "mutable": {"message.edited"},
    "presence": {"presence.joined", "presence.left", "typing.start", "typing.stop"},
    "reactions": {"reaction.added", "reaction.removed"},
    "channels": {"channel.activity"},
    "watch": {"watch.ref_content_edited", "watch.ref_reply_added", "watch.ref_thread_reply", "watch.channel_new_ref"},
}
"""Of ezagent 10.3."""
HOOKS = {
    Phase.PRE_SEND: [
        "channels.inject_tags",
        "reactions.inject",
        "reply_to.inject",
        "threads.inject",
        "watch.set_channel",
        "watch.set_ref",
        "cross_room.inject",
    ],
    Phase.AFTER_WRITE: [
        "reactions.emit",
        "watch.check_ref_watchers",
        "watch.check_channel_watchers",
        "profile.index_update",
        "channels.update_activity",
        "receipts.update_unread",
    ],
    Phase.AFTER_READ: ["cross_room.resolve_preview", "channels.aggregate", "threads.filter", "receipts.auto_mark"],
}
"""Of the sections of ezagent 5, in the order of their priorities."""
INDEXES = {
    "version_history",
    "reaction_summary",
    "reply_chain",
    "cross_room_preview",
    "channel_aggregation",
    "channel_list",
    "thread_view",
    "my_watches",
    "unread_count",
    "profile_lookup",
    "discovery_search",
}


def test_they_have_the_names_and_the_order_of_the_specification() -> None:
    registry = Registry(WITH)
    by_id = {declaration.id: declaration for declaration in EXTENSIONS}
    assert all(declaration.origin is Origin.STANDARD for declaration in EXTENSIONS)
    for name, operations in OPERATIONS.items():
        declaration = by_id[name]
        mine = {operation.id for operation in declaration.operations}
        mine |= {index.operation_id for index in declaration.indexes if index.operation_id is not None}
        assert mine == operations
        assert EVENTS.get(name, set()) <= set(declaration.events)
    assert set(registry.indexes) >= INDEXES
    for phase, expected in HOOKS.items():
        names = [hook.id for _, hook in registry.hooks(phase)]
        assert [name for name in names if name in expected] == expected


def test_a_message_with_all_of_them_at_once_and_a_peer_that_knows_none() -> None:
    alice, bob = peers("alice", "bob", declarations=WITH)
    plain = Peer("carol", 3_000)
    for peer in (alice, bob):
        peer.meet(plain)
    plain.meet(alice, bob)
    room = shared_room(alice, bob)
    alice.do("room.invite", room_id=room, entity=plain.id)
    invited = alice.published()
    bob.hear(invited)
    root = alice.do("message.send", room_id=room, body="plan")["ref_id"]
    bob.hear(alice.published())
    bob.clock.now_ms += 1
    bob.do("watch.set", room_id=room, ref_id=root, reason="mine")
    ext: dict[str, Any] = {"reply_to": root, "thread": root, "channels": ["design"], "watch": None}
    reply = bob.do("message.send", room_id=room, body="done", ext=ext)["ref_id"]
    bob.do("reactions.add", room_id=room, ref_id=root, emoji="👍")
    out = bob.published()
    alice.hear(out)
    # The one without extensions keeps what it does not know, and hands it on as it came.
    plain.catch_up(alice, room)
    assert plain.refused() == {}
    kept = plain.do("timeline.get_ref", room_id=room, ref_id=reply)
    assert (kept["ext.reply_to"], kept["ext.thread"], kept["ext.channels"]) == (
        {"ref_id": root},
        {"root": root},
        ["design"],
    )
    fourth = Peer("dave", 4_000, declarations=WITH)
    fourth.meet(alice, bob, plain)
    fourth.catch_up(plain, room)
    views = [peer.engine.reading.ref(root) for peer in (alice, bob, fourth, plain)]
    assert views[0] is not None
    assert all(view == views[0] for view in views)
    assert set(views[0]["ext.reactions"]) == {f"👍:{bob.id}"}
    assert set(views[0]["ext.watch"]) == {bob.id}


def test_what_is_sent_by_a_peer_without_them_is_read_by_one_with_them() -> None:
    (alice,) = peers("alice", declarations=WITH)
    plain = Peer("carol", 3_000)
    alice.meet(plain)
    plain.meet(alice)
    room = alice.do("room.create", name="r", invite=[plain.id])["room_id"]
    plain.catch_up(alice, room)
    junk = {"reactions": 5, "watch": [1], "reply_to": "x", "thread": {"root": 0}, "channels": {"a": 1}}
    plain.do("message.send", room_id=room, body="odd", ext=junk)
    alice.hear(plain.published())
    assert alice.bodies(room) == ["odd"]
    assert alice.do("channels.list") == alice.do("threads.list", room_id=room)["refs"] == []
