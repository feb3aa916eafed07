"""The hub between real sessions of Zenoh: what goes through, to whom, and what ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.messaging.relay import hub as hub_module
from sublet.protocol.federation.relayed_keys import relayed_key
from support.relay_accounts import Client
from support.relay_hub import RunningHub, running_hub, until

INDEX = "index/2026-11/updates"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningHub]:
    with running_hub(tmp_path) as made:
        yield made


def test_members_hear_each_other_and_nobody_else_does(running: RunningHub) -> None:
    alice, bob, carol = (running.link(Client(name)) for name in ("alice", "bob", "carol"))
    room = running.room(alice, [bob])
    carol.attend([room], [alice.client, bob.client])
    alice.put(f"ezagent/{room}/{INDEX}", b"hello")
    until(lambda: (f"down/{bob.client.slot}/ezagent/{room}/{INDEX}", b"hello") in bob.heard, "the message")
    bob.put(f"ezagent/{room}/config/updates", b"back")
    until(lambda: any(payload == b"back" for _, payload in alice.heard), "the answer")
    carol.put(f"ezagent/{room}/{INDEX}", b"of carol")
    alice.put(f"ezagent/{room}/{INDEX}", b"last")
    until(lambda: any(payload == b"last" for _, payload in bob.heard), "the last message")
    assert carol.heard == []
    assert not any(payload == b"of carol" for _, payload in [*alice.heard, *bob.heard])
    assert alice.keys() == [f"ezagent/{room}/config/updates"], "nothing comes back to who has sent it"


def test_a_question_has_the_answers_of_all_members_and_ends_with_the_last(running: RunningHub) -> None:
    alice, bob, carol = (running.link(Client(name)) for name in ("alice", "bob", "carol"))
    room = running.room(alice, [bob, carol])
    key = f"ezagent/{room}/config/state"
    assert alice.ask(key) == [], "nobody serves it, so nobody is waited for"
    bob.serve(bob.own(), b"of bob")
    carol.serve(carol.own(), b"of carol")
    until(lambda: sorted(alice.ask(key)) == [b"of bob", b"of carol"], "both answers")
    assert alice.ask(f"ezagent/{bob.client.entity}/inbox/updates", b"come") == [b"of bob"]
    until(lambda: not running.hub._questions, "the end of all questions")


def test_who_only_reads_is_heard_where_readers_are(running: RunningHub) -> None:
    alice, bob = running.link(Client("alice")), running.link(Client("bob"))
    room = running.room(alice, [bob])
    muted = alice.client.states(room, [alice.client], 2, readers=[bob.client])
    assert alice.control("room", muted.encode()) == {"ok": 2}
    bob.put(f"ezagent/{room}/{INDEX}", b"too loud")
    bob.put(f"ezagent/{room}/delivery", b"seen")
    until(lambda: any(payload == b"seen" for _, payload in alice.heard), "the acknowledgement")
    assert not any(payload == b"too loud" for _, payload in alice.heard)
    alice.put(f"ezagent/{room}/{INDEX}", b"for readers")
    until(lambda: any(payload == b"for readers" for _, payload in bob.heard), "the message")


def test_what_the_relay_is_told_is_answered(running: RunningHub) -> None:
    alice, bob = running.link(Client("alice")), running.link(Client("bob"))
    room = alice.client.room()
    assert alice.control("statement", room.encode()) == {"ok": None}
    running.room(alice, [])
    assert alice.control("statement", room.encode())["ok"].startswith("{")
    assert bob.control("statement", room.encode()) == {"ok": None}, "who is in a room is told to its members alone"
    for key, payload in (("attend", b"{"), ("room", b"[]"), ("nothing", b""), ("statement", b"x" * 100)):
        assert alice.control(key, payload)["error"]["code"] == "VALIDATION_ERROR"
    old = alice.client.states(room, [alice.client])
    assert alice.control("room", old.encode())["error"]["code"] == "CONFLICT"
    assert (
        bob.control("room", bob.client.states(room, [bob.client], 9, creator=alice.client).encode())["error"]["code"]
        == "PERMISSION_DENIED"
    )


def test_tokens_are_shown_to_members_while_both_are_there(running: RunningHub) -> None:
    alice, bob = running.link(Client("alice")), running.link(Client("bob"))
    room = running.room(alice, [bob])
    key = f"ezagent/{room}/ephemeral/presence/{alice.client.entity}"
    wire = f"down/{bob.client.slot}/{key.replace('/@', '/+@')}"
    alice.announce(key)
    until(lambda: (wire, True) in bob.tokens, "the token")
    alice.announce(f"ezagent/{room}/ephemeral/presence/{bob.client.entity}")
    carol = running.link(Client("carol"))
    with_carol = alice.client.states(room, [one.client for one in (alice, bob, carol)], 2)
    alice.control("room", with_carol.encode())
    carol.attend([room], [])
    until(lambda: carol.tokens, "the token for who came later")
    assert [there for _, there in carol.tokens] == [True]
    alice.control("room", alice.client.states(room, [alice.client, bob.client], 3).encode())
    until(lambda: carol.tokens[-1][1] is False, "the end of the token for who has left")
    alice.close()
    until(lambda: bob.tokens[-1] == (wire, False), "the end of the token with its session")
    assert {at for at, _ in bob.tokens} == {wire}, "nobody is announced by somebody else"
    until(lambda: running.hub.tokens.count() == 0, "nothing that is left")


def test_questions_without_end_are_bounded_for_each_slot(running: RunningHub, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = running.link(Client("alice")), running.link(Client("bob"))
    room = running.room(alice, [bob])
    bob.serve(bob.own(), b"here")
    until(lambda: alice.ask(f"ezagent/{room}/root") == [b"here"], "an answer")
    monkeypatch.setattr(hub_module, "MAX_QUESTIONS_OF_SLOT", 0)
    assert alice.ask(f"ezagent/{room}/root") == []
    monkeypatch.undo()
    monkeypatch.setattr(hub_module, "MAX_ANSWERS", 2)
    bob.serve(bob.own(), b"again", times=50)
    until(lambda: 0 < len(alice.ask(f"ezagent/{room}/root")) <= 3, "a bounded number of answers")


def test_what_a_client_wants_to_hear_ends_with_its_link(running: RunningHub) -> None:
    alice, bob = running.link(Client("alice")), running.link(Client("bob"))
    running.room(alice, [bob])
    assert running.hub.linked() == 2
    bob.close()
    until(lambda: set(running.hub.attending) == {alice.client.node}, "bob to be forgotten")
    assert running.hub.linked() == 1


def test_a_node_is_asked_by_who_it_has_named_and_nobody_else_hears_of_it(running: RunningHub) -> None:
    alice, bob, carol = (running.link(Client(name)) for name in ("alice", "bob", "carol"))
    for one in (alice, bob, carol):
        one.serve(one.own(), f"of {one.client.name}".encode())
        one.attend([], [other.client for other in (alice, bob, carol) if other is not one])
    key = relayed_key("event", bob.client.node, alice.client.node)
    until(lambda: alice.ask(key, b"sealed") == [b"of bob"], "the answer of bob alone")
    assert carol.ask(key, b"sealed") == [], "in the name of another"
    assert alice.ask(key.replace(bob.client.node, "*"), b"sealed") == []
    alice.put(key, b"published")
    bob.attend([], [carol.client])
    assert alice.ask(key, b"sealed") == [], "bob is paired with alice no more"
    assert [*alice.heard, *bob.heard, *carol.heard] == []
