"""What steers is bound to a process: refused where that is known to be gone, and told as stale where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.builtins.control import control_of
from sublet.messaging.delivery.receipts import receipts_of
from sublet.messaging.extensions.read_receipts import RECEIPTS
from sublet.messaging.extensions.reply_to import REPLY_TO
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.yjs.update import Value
from support.rooms import Peer, peers, shared_room

WITH = (*BUILT_INS, REPLY_TO, RECEIPTS)


def send(peer: Peer, room: str, **ext: Any) -> str:
    ref: str = peer.do("message.send", room_id=room, body="now", **({"ext": ext} if ext else {}))["ref_id"]
    return ref


def control(peer: Peer, ref: str) -> tuple[str, str] | None:
    found = peer.engine.reading.ref(ref)
    assert found is not None
    return control_of(found)


def told(peer: Peer) -> list[tuple[str, Any]]:
    events = peer.engine.events.since(0)
    return [(row.kind, row.data["ref_id"]) for row in events if row.kind.startswith("control.")]


def restarted(peer: Peer) -> None:
    """Let a peer be another process over the same data."""
    peer.engine.epochs.own = b"restart" + bytes([peer.engine.epochs.own[0] ^ 1])
    peer.clock.now_ms += 1


def test_an_answer_is_for_the_process_that_asked() -> None:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    question = send(bob, room, asks=True)
    alice.hear(bob.published())
    answer = send(alice, room, reply_to=question)
    assert control(alice, answer) == (bob.id, bob.engine.epochs.own.hex())
    plain = send(alice, room)
    assert control(alice, plain) is None
    assert control(alice, send(alice, room, reply_to=plain)) is None
    bob.hear(alice.published())
    assert told(bob) == [("control.received", answer)]
    assert told(alice) == []


def test_an_answer_to_a_process_that_is_gone_steers_nothing() -> None:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    question = send(bob, room, asks=True)
    alice.hear(bob.published())
    restarted(bob)
    late = send(alice, room, reply_to=question)  # which Alice can't know
    bob.hear(alice.published())
    assert told(bob) == [("control.stale", late)]
    # Once it is known, it is refused before anything is written.
    again = send(bob, room, asks=True)
    alice.hear(bob.published())
    written = alice.store.last_seq()
    with pytest.raises(SubletError, match="started again") as refused:
        send(alice, room, reply_to=question)
    assert refused.value.code is LocalCode.CONFLICT
    assert alice.store.last_seq() == written
    assert alice.published() == []
    (receipt,) = receipts_of(alice.engine, alice.id, room, late, 3_600.0).recipients
    assert "steers nothing" in receipt.reason
    answer = send(alice, room, reply_to=again)
    bob.hear(alice.published())
    assert told(bob) == [("control.stale", late), ("control.received", answer)]


def test_what_steers_by_itself_names_whom_and_the_epoch_that_is_known() -> None:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    with pytest.raises(SubletError, match="nothing has been heard"):
        send(alice, room, control={"to": bob.id})
    send(bob, room, asks=True)
    alice.hear(bob.published())
    sent = send(alice, room, control={"to": bob.id})
    assert control(alice, sent) == (bob.id, bob.engine.epochs.own.hex())
    for wrong in ({}, {"to": "bob"}, "bob", {"to": bob.id, "epoch": "x"}):
        with pytest.raises(SubletError) as refused:
            send(alice, room, control=wrong)
        assert refused.value.code is LocalCode.INVALID_ARGUMENT
    with pytest.raises(SubletError, match="started again"):
        send(alice, room, control={"to": bob.id, "epoch": "00" * 8})
    bob.hear(alice.published())
    assert told(bob) == [("control.received", sent)]


def test_of_what_is_malformed_nothing_is_told() -> None:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    epoch = bob.engine.epochs.own.hex()
    malformed: tuple[Value, ...] = (
        "bob",
        {"to": bob.id},
        {"to": 5, "epoch": epoch},
        {"to": bob.id, "epoch": epoch.upper() + "0"},
    )
    for value in malformed:
        ref = send(alice, room)
        document = alice.engine.shards.for_new_ref(room)
        alice.engine.writing.set_field(alice.id, document, ref, ("ext.control",), value)
        alice.engine.commit()
        assert control(alice, ref) is None
    bob.hear(alice.published())
    assert told(bob) == []
