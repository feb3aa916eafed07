"""C31, C32 and C33 through the commands: what became of a message is always told, and mail waits for who is away."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon_rooms import Commands, shared_room
from support.daemons import two_daemons, wait_for
from support.typed_commands import Typing

WAIT_SECONDS = 40
pytestmark = pytest.mark.timeout(300)
PAIR = tuple[Typing, Typing]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[PAIR]:
    with two_daemons(tmp_path) as (one, other):
        yield Typing(one), Typing(other)


def new_messages(who: Commands, *options: str) -> list[str]:
    found = who.json("watch", *options)
    return [event["ref_id"] for event in found["events"] if event["kind"] == "message.new"]


def until_new(who: Commands, ref: str) -> None:
    """Wait until a message is there, without taking it."""
    wait_for(lambda: ref in new_messages(who, "--peek", "--wait", "5"), WAIT_SECONDS, "the message")


def receipt(who: Commands, room: str, ref: str, *options: str) -> str:
    found: str = who.json("receipts", room, ref, *options)["receipt"]
    return found


def test_c31_and_c32_mail_waits_and_its_sender_knows_how_far_it_came(pair: PAIR) -> None:
    alice, bob = pair
    room = shared_room(alice, bob)
    new_messages(bob)

    # Nobody watches: it is delivered, stays unread, and comes first on the next watch, once.
    first = alice.json("send", room, "you there?")
    assert first["receipt"] == "queued"
    assert receipt(alice, room, first["ref_id"], "--until", "delivered", "--wait", str(WAIT_SECONDS)) == "delivered"
    until_new(bob, first["ref_id"])
    assert receipt(alice, room, first["ref_id"]) == "delivered"
    assert new_messages(bob) == [first["ref_id"]]
    assert new_messages(bob) == []
    assert receipt(alice, room, first["ref_id"], "--until", "read", "--wait", str(WAIT_SECONDS)) == "read"

    # Somebody watches: told at once, and what is sent while it goes idle is told by the next one.
    heard: list[str] = []
    watching = threading.Thread(target=lambda: heard.extend(new_messages(bob.daemon, "--wait", str(WAIT_SECONDS))))
    watching.start()
    sent = [alice.json("send", room, f"number {number}")["ref_id"] for number in range(4)]
    watching.join()
    while len(heard) < len(sent):
        until_new(bob, sent[len(heard)])
        heard += new_messages(bob)
    assert heard == sent

    # Read by reading the room, too.
    page = alice.json("send", room, "see the room")["ref_id"]
    until_new(bob, page)
    bob.run("read", room)
    assert receipt(alice, room, page, "--until", "read", "--wait", str(WAIT_SECONDS)) == "read"
    wait_for(lambda: new_messages(bob, "--peek") == [], WAIT_SECONDS, "what was read to be news no more")

    # Both sides are killed: what was acknowledged stays, what was not goes on.
    bob.daemon.kill(signal.SIGKILL)
    away = alice.json("send", room, "while you were away")["ref_id"]
    assert receipt(alice, room, away) == "queued"
    alice.daemon.kill(signal.SIGKILL)
    alice.daemon.up()
    assert receipt(alice, room, page) == "read"
    assert receipt(alice, room, away) == "queued"
    bob.daemon.up()
    assert receipt(alice, room, away, "--until", "delivered", "--wait", str(WAIT_SECONDS)) == "delivered"
    bob.daemon.kill(signal.SIGKILL)
    bob.daemon.up()
    assert new_messages(bob) == [away]
    assert new_messages(bob) == []

    # Nobody: an error, never a receipt.
    assert alice.refused("send", "00000000-0000-7000-8000-000000000000", "hello?") == "NOT_FOUND"
    assert bob.refused("receipts", room, away) == "NOT_FOUND", "receipts are the author's"


def test_c33_a_message_to_who_is_gone_is_undeliverable_and_kept(pair: PAIR) -> None:
    alice, bob = pair
    room = shared_room(alice, bob)
    bob.daemon.kill(signal.SIGKILL)
    alice.daemon.run("down")
    alice.daemon.wait_gone()
    config = alice.daemon.home / "config"
    config.mkdir(mode=0o700, parents=True, exist_ok=True)
    (config / "config.json").write_text(json.dumps({"messaging": {"undeliverable_seconds": 0.01}}))
    alice.daemon.up()
    lost = alice.json("send", room, "are you gone?")["ref_id"]
    wait_for(lambda: receipt(alice, room, lost) == "undeliverable", WAIT_SECONDS, "the receipt")
    shown = alice.run("receipts", room, lost)
    assert "has not answered" in shown
    assert [one["body"] for one in alice.json("read", room)] == ["are you gone?"]

    # Back again, it is delivered all the same.
    bob.daemon.up()
    wait_for(lambda: receipt(alice, room, lost) == "delivered", WAIT_SECONDS, "its delivery")
    until_new(bob, lost)

    # Who has left gets nothing more, which is said.
    bob.run("room", "leave", room)
    left = f"@human:{bob.json('status')['node_id']}"
    wait_for(lambda: left not in alice.json("room", "show", room)["roles"], WAIT_SECONDS, "the leave")
    assert receipt(alice, room, lost) == "delivered"
    assert alice.json("receipts", room, alice.json("send", room, "to myself")["ref_id"])["recipients"] == []
