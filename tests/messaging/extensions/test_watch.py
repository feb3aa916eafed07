"""EXT-14: whoever watches is told, at home and alone, of what others do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions.channels import CHANNELS
from sublet.messaging.extensions.cross_room import CROSS_ROOM_REF
from sublet.messaging.extensions.reactions import REACTIONS
from sublet.messaging.extensions.reply_to import REPLY_TO
from sublet.messaging.extensions.threads import THREADS
from sublet.messaging.extensions.watch import WATCHES
from sublet.messaging.service import MessagingService
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.update import Value
from support.consents import TakesAll
from support.memory_network import MemoryHub
from support.rooms import NOW_MS, Peer, local_entity, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, REPLY_TO, CROSS_ROOM_REF, THREADS, REACTIONS, CHANNELS, WATCHES)


def told(peer: Peer) -> list[Mapping[str, Any]]:
    """Return what a peer's watches have told."""
    events = peer.engine.events.since(0)
    return [{"kind": event.kind, **event.data} for event in events if event.kind.startswith("watch.")]


def say(peer: Peer, room: str, body: str, **ext: Any) -> str:
    ref: str = peer.do("message.send", room_id=room, body=body, ext=ext)["ref_id"]
    return ref


def room_with_a_message() -> tuple[Peer, Peer, str, str]:
    """Return two peers in a room, and a message of the first."""
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    ref = say(alice, room, "a task")
    bob.hear(alice.published())
    return alice, bob, room, ref


def test_a_reply_to_what_is_watched_is_told_to_the_watcher() -> None:
    alice, bob, room, ref = room_with_a_message()
    bob.do("watch.set", room_id=room, ref_id=ref, reason="processing_task")
    alice.hear(bob.published())
    say(alice, room, "unrelated")
    reply = say(alice, room, "more about it", reply_to=ref)
    bob.hear(alice.published())
    assert told(bob) == [
        {
            "kind": "watch.ref_reply_added",
            "watcher": bob.id,
            "watched_ref": ref,
            "room_id": room,
            "new_ref_id": reply,
        }
    ]
    assert told(alice) == []  # the watcher is not at home there
    shown = alice.do("timeline.get_ref", room_id=room, ref_id=ref)["ext.watch"][bob.id]
    assert (shown["reason"], shown["on_reply"], shown["on_reaction"]) == ("processing_task", True, False)


def test_nobody_is_told_of_what_they_do_themselves_or_of_what_is_not_watched_for() -> None:
    alice, bob, room, ref = room_with_a_message()
    bob.do("watch.set", room_id=room, ref_id=ref, on_reply=False)
    say(bob, room, "my own", reply_to=ref, thread=ref)
    alice.hear(bob.published())
    say(alice, room, "a reply", reply_to=ref)
    alice.do("reactions.add", room_id=room, ref_id=ref, emoji="👍")
    bob.hear(alice.published())
    assert told(bob) == []
    reply = say(alice, room, "in the thread", thread=ref)
    bob.hear(alice.published())
    assert [(event["kind"], event["new_ref_id"]) for event in told(bob)] == [("watch.ref_thread_reply", reply)]


def test_edits_and_reactions_are_told() -> None:
    alice, bob, room, ref = room_with_a_message()
    bob.do("watch.set", room_id=room, ref_id=ref, on_reaction=True)
    alice.hear(bob.published())
    timeline, other = doc_id("index", room_id=room, shard_id="2026-11"), "sha256:" + "0" * 64
    alice.engine.writing.set_fields(alice.id, timeline, [(ref, ("content_id",), other), (ref, ("status",), "edited")])
    alice.engine.commit()
    alice.do("reactions.add", room_id=room, ref_id=ref, emoji="👍")
    alice.do("reactions.remove", room_id=room, ref_id=ref, emoji="👍")
    bob.hear(alice.published())
    edited, added, removed = told(bob)
    assert (edited["kind"], edited["new_content_id"]) == ("watch.ref_content_edited", other)
    assert {added["kind"], removed["kind"]} == {"watch.ref_reaction_changed"}
    assert (added["removed"], removed["removed"], added["by"], added["emoji"]) == (False, True, alice.id, "👍")


def test_channels_are_watched_in_one_room_or_in_all() -> None:
    alice, bob, room, _ = room_with_a_message()
    other = shared_room(alice, bob)
    bob.do("watch.set", room_id=room, channels=["#Review", "design"])
    alice.hear(bob.published())
    there = say(alice, other, "x", channels=["review", "else"])
    say(alice, other, "y", channels=["else"])
    alone = alice.do("room.create", name="alone")["room_id"]
    say(alice, alone, "z", channels=["review"])
    out = alice.published()
    bob.hear(item for item in out if alone not in item.key)
    assert told(bob) == [
        {"kind": "watch.channel_new_ref", "watcher": bob.id, "channel": "review", "room_id": other, "new_ref_id": there}
    ]
    bob.do("watch.set", room_id=room, channels=["design"], scope="this_room")
    alice.hear(bob.published())
    say(alice, other, "x", channels=["design", "review"])
    here = say(alice, room, "x", channels=["design", "review"])
    bob.hear(alice.published())
    assert [(event["channel"], event["new_ref_id"]) for event in told(bob)[1:]] == [("design", here)]


def test_a_reply_from_another_room_is_told_only_to_who_is_in_both() -> None:
    alice, bob, room, ref = room_with_a_message()
    alone = alice.do("room.create", name="alone")["room_id"]
    carol = local_entity("carol", 3_000)
    alice.engine.keyring.add(carol)
    carol_id = carol.record.entity_id
    alice.do("room.invite", room_id=room, entity=carol_id)
    run_operation(
        alice.engine.registry.operations,
        alice.engine.operating,
        carol_id,
        "watch.set",
        {"room_id": room, "ref_id": ref},
    )
    alice.engine.commit()
    target = {"ref_id": ref, "room_id": room}
    say(alice, alone, "secretly", reply_to=target)
    assert told(alice) == []
    alice.do("room.invite", room_id=alone, entity=carol_id)
    say(alice, alone, "openly", reply_to=target)
    assert [event["watcher"] for event in told(alice)] == [carol_id]
    assert bob.kinds().count("watch.ref_reply_added") == 0


def test_watches_are_listed_and_end() -> None:
    alice, bob, room, ref = room_with_a_message()
    bob.do("watch.set", room_id=room, ref_id=ref, reason="why")
    bob.do("watch.set", room_id=room, channels=["review"])
    flags = {"on_content_edit": True, "on_reply": True, "on_thread": True, "on_reaction": False}
    assert bob.do("watch.list") == {
        "refs": [{"room_id": room, "ref_id": ref, "reason": "why", **flags}],
        "channels": [{"room_id": room, "channels": ["review"], "scope": "all_rooms"}],
    }
    assert alice.do("watch.list") == {"refs": [], "channels": []}
    assert bob.do("watch.unset", room_id=room, ref_id=ref) == {"removed": True}
    assert bob.do("watch.unset", room_id=room, ref_id=ref) == {"removed": False}
    assert bob.do("watch.unset", room_id=room) == {"removed": True}
    assert bob.do("watch.unset", room_id=room) == {"removed": False}
    assert bob.do("watch.list") == {"refs": [], "channels": []}
    alice.hear(bob.published())
    say(alice, room, "x", reply_to=ref, channels=["review"])
    bob.hear(alice.published())
    assert told(bob) == []


def test_who_is_removed_watches_nothing_any_more() -> None:
    alice, bob, room, ref = room_with_a_message()
    bob.do("watch.set", room_id=room, ref_id=ref)
    alice.hear(bob.published())
    alice.do("room.kick", room_id=room, entity=bob.id)
    say(alice, room, "x", reply_to=ref)
    bob.hear(alice.published())
    assert told(bob) == []
    assert bob.do("watch.list")["refs"] == []


def test_nobody_watches_for_another() -> None:
    alice, bob, room, ref = room_with_a_message()
    with pytest.raises(SubletError, match="whoever sets it"):
        bob.do("annotation.add", room_id=room, ref_id=ref, name="watch", key=alice.id, value={})
    config = doc_id("config", room_id=room)
    values: tuple[Value, ...] = ({"channels": ["x"]}, None)
    for value in values:
        with pytest.raises(SubletError):
            bob.engine.writing.set_field(bob.id, config, None, ("ext", "watch", alice.id), value)
        with pytest.raises(SubletError):
            alice.engine.writing.set_field(alice.id, config, None, ("ext", "watch", bob.id), value)
    assert bob.published() == []


def test_what_is_no_watch() -> None:
    alice, bob, room, ref = room_with_a_message()
    wrong: list[dict[str, Any]] = [
        {},
        {"ref_id": ref, "channels": ["x"]},
        {"ref_id": ref, "reason": "x" * 201},
        {"ref_id": ref, "on_reply": "yes"},
        {"ref_id": "ulid:01ARYZ6S41TSV4RRFFQ69G5FAV"},
        {"channels": []},
        {"channels": ["a b"]},
        {"channels": ["x"], "scope": "everywhere"},
    ]
    for arguments in wrong:
        with pytest.raises(SubletError):
            bob.do("watch.set", room_id=room, **arguments)
    with pytest.raises(SubletError, match=r"without ext\.watch"):
        say(alice, room, "x", watch={alice.id: {"reason": ""}})
    with pytest.raises(SubletError, match="no such room"):
        bob.do("watch.set", room_id=alice.do("room.create", name="alone")["room_id"], channels=["x"])
    assert bob.published() == []


@pytest.mark.anyio
async def test_two_at_home_in_one_daemon_hear_their_own_watches_only(tmp_path: Path) -> None:
    alice, carol = local_entity("alice", 1), local_entity("carol", 2)
    ids = [entity.record.entity_id for entity in (alice, carol)]
    service = MessagingService(
        tmp_path / "m.db",
        Registry(WITH),
        MemoryHub().join(),
        [alice, carol],
        lambda: NOW_MS,
        lambda _: True,
        consent=TakesAll(),
    )
    async with service.running():
        of_alice, of_carol = (service.bus(entity) for entity in ids)
        room = (await of_alice.room.create(name="r", invite=[ids[1]]))["room_id"]
        ref = (await of_alice.message.send(room_id=room, body="a task"))["ref_id"]
        await of_carol.watch.set(room_id=room, ref_id=ref)
        await of_alice.message.send(room_id=room, body="more", ext={"reply_to": ref})
        heard = [(await service.watch(entity, 0, 0.0))["events"] for entity in ids]
        kinds = [[event["kind"] for event in events] for events in heard]
        assert "watch.ref_reply_added" not in kinds[0]
        assert kinds[1].count("watch.ref_reply_added") == 1
        assert kinds[0].count("message.new") == kinds[1].count("message.new") == 2
