"""A room from end to end over two engines, without a network."""

from __future__ import annotations

import pytest

from sublet.messaging.declaring.operations import run_operation
from sublet.protocol.errors import SubletError
from support.rooms import peers, shared_room


def test_a_message_arrives_with_its_content() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    sent = alice.do("message.send", room_id=room, body="Caf\u00e9 \U0001f469")
    bob.hear(alice.published())
    assert bob.bodies(room) == ["Caf\u00e9 \U0001f469"] == alice.bodies(room)
    ref = bob.do("timeline.get_ref", room_id=room, ref_id=sent["ref_id"])
    assert (ref["author"], ref["status"], ref["shard_id"]) == (alice.id, "active", "2026-11")
    assert bob.refused() == {}
    assert "message.new" in bob.kinds()


def test_a_burst_shares_an_envelope() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    for index in range(10):
        run_operation(
            alice.engine.registry.operations,
            alice.engine.operating,
            alice.id,
            "message.send",
            {"room_id": room, "body": str(index)},
        )
    alice.engine.commit()
    out = alice.published()
    assert len(out) == 1
    bob.hear(out)
    assert bob.bodies(room) == [str(index) for index in range(10)]


def test_what_can_not_be_written_takes_nothing_of_the_same_burst_with_it() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    deep: object = 1
    for _ in range(20):
        deep = [deep]
    wrong = [{"note": deep}, {"note": 2**60 + 1}, {"note": "\ud800"}, {"note": "x" * 140_000}, {"n" * 600: 1}]
    run_operation(
        alice.engine.registry.operations,
        alice.engine.operating,
        alice.id,
        "message.send",
        {"room_id": room, "body": "before"},
    )
    for ext in wrong:
        with pytest.raises(SubletError, match=r"can't be written"):
            run_operation(
                alice.engine.registry.operations,
                alice.engine.operating,
                alice.id,
                "message.send",
                {"room_id": room, "body": "wrong", "ext": ext},
            )
    run_operation(
        alice.engine.registry.operations,
        alice.engine.operating,
        alice.id,
        "message.send",
        {"room_id": room, "body": "after"},
    )
    alice.engine.commit()
    bob.hear(alice.published())
    assert alice.bodies(room) == bob.bodies(room) == ["before", "after"]
    assert bob.refused() == {}


def test_a_deleted_message_has_no_body() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="oops")["ref_id"]
    bob.hear(alice.published())
    with pytest.raises(SubletError, match="only its author"):
        bob.do("message.delete", room_id=room, ref_id=ref)
    alice.do("message.delete", room_id=room, ref_id=ref)
    bob.hear(alice.published())
    shown = bob.do("timeline.get_ref", room_id=room, ref_id=ref)
    assert shown["status"] == "deleted_by_author"
    assert shown.get("body") is None
    assert "message.deleted" in bob.kinds()
