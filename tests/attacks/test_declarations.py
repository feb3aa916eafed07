"""A paired daemon that declares more to Zenoh than any daemon does: it is cut before Zenoh has it, and named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from attacks.kit.neighbour import Declarer, bus_port, identity_key, public
from attacks.test_bus import ANN, BOB, DATA, EVE, Bus, joined
from sublet.messaging.links import declared, shut_out
from sublet.messaging.links import links as links_module
from sublet.messaging.links.declared import MAX_ANNOUNCED, MAX_CHANGES, MAX_DECLARED
from sublet.messaging.links.link import Link
from support.daemon_rooms import WAIT_SECONDS
from support.daemons import two_daemons, wait_for
from support.typed_commands import Typing

KEY = "ezagent/01a2212b-1000-7167-9394-011daa8147"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def three(tmp_path: Path, stack: ExitStack) -> tuple[Bus, Bus]:
    """Return Ann, who is paired with Bob and Eve, and Bob, who has a link to her."""
    ann, bob = Bus(tmp_path / "ann", ANN, [BOB, EVE]), Bus(tmp_path / "bob", BOB, [ANN])
    for one in (ann, bob):
        stack.callback(one.close)
    bob.call(ANN, ann.port)
    joined(ann, bob)
    return ann, bob


def eve_at(ann: Bus, stack: ExitStack) -> Declarer:
    eve = Declarer(EVE, public(ANN), ann.port)
    stack.callback(eve.close)
    wait_for(lambda: public(EVE) in ann.links.peers() and eve.peers(), what="her link")
    return eve


def refused(ann: Bus) -> str:
    """Wait until Eve is shut out; return why."""
    return str(wait_for(lambda: ann.links.shut_out().get(public(EVE)), 60, "the end of her link"))


@pytest.mark.parametrize("kind", ["subscriber", "queryable"])
def test_whoever_hears_or_answers_under_other_keys_is_shut_out(tmp_path: Path, stack: ExitStack, kind: str) -> None:
    ann, bob = three(tmp_path, stack)
    eve = eve_at(ann, stack)
    eve.declare(kind, f"{KEY}00/config/updates")
    assert refused(ann) == "a key that no daemon declares"
    assert ann.links.peers() == [public(BOB)]
    joined(ann, bob)


def test_tokens_without_end_end_with_the_link(tmp_path: Path, stack: ExitStack) -> None:
    ann, bob = three(tmp_path, stack)
    eve = eve_at(ann, stack)
    for number in range(MAX_DECLARED):
        eve.declare("token", f"{KEY}00/{number}")
    assert refused(ann) == f"more than {MAX_DECLARED:,} declarations"
    assert ann.links._shut_out.declared[public(EVE)].count == 0, "Zenoh forgets them with the link"
    assert ann.network._tokens.count() == 0
    joined(ann, bob)


def test_what_is_declared_and_taken_back_all_the_time_has_a_bound(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared, "MAX_CHANGES", 500)
    ann, _ = three(tmp_path, stack)
    eve = eve_at(ann, stack)
    for number in range(20):
        for one in range(10):
            eve.declare("token", f"{KEY}00/{number}/{one}")
        eve.take_back()
    assert refused(ann) == "more than 500 changes of what it declares"


def test_whoever_comes_back_begins_with_what_it_has_left(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared, "MAX_CHANGES", 60)
    ann, _ = three(tmp_path, stack)
    for times in range(1, 9):
        with ExitStack() as link:
            eve = eve_at(ann, link)
            for number in range(10):
                eve.declare("token", f"{KEY}00/{times}/{number}")
            wait_for(lambda: ann.network._tokens.count() == 10 or ann.links.shut_out(), what="her tokens")
        if ann.links.shut_out():
            break
        wait_for(lambda: public(EVE) not in ann.links.peers(), what="the end of her link")
    assert 1 < times < 8
    assert refused(ann) == "more than 60 changes of what it declares"


def test_who_is_shut_out_is_let_in_again_and_for_longer_out_each_time(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    ann, _ = three(tmp_path, stack)
    ann.links._shut_out = shut_out.ShutOut(lambda: now[0])
    eve = eve_at(ann, stack)
    eve.declare("subscriber", f"{KEY}00")
    refused(ann)
    eve.take_back()
    tried = links_module.Links._prove

    came: list[bool] = []

    def prove(self: links_module.Links, link: Link) -> None:
        try:
            tried(self, link)
        finally:
            if self is ann.links:
                came.append(link.peer is not None)

    monkeypatch.setattr(links_module.Links, "_prove", prove)
    wait_for(lambda: len(came) > 2, what="her calls")
    assert not any(came)
    now[0] += shut_out.SHUT_OUT_SECONDS + 0.1
    wait_for(lambda: public(EVE) in ann.links.peers(), what="her link again")
    eve.declare("subscriber", f"{KEY}00")
    wait_for(lambda: public(EVE) not in ann.links.peers(), what="its end")
    assert ann.links._shut_out._of[public(EVE)].seconds == 2 * shut_out.SHUT_OUT_SECONDS


def test_a_daemon_announces_no_more_than_others_take(tmp_path: Path, stack: ExitStack) -> None:
    ann, bob = three(tmp_path, stack)
    ends = [bob.network.announce(f"{KEY}00/ephemeral/presence/@bob:{number}") for number in range(MAX_ANNOUNCED + 50)]
    wait_for(lambda: ann.network._tokens.count() == MAX_ANNOUNCED, 60, "as many tokens as are announced")
    there: list[bool] = []
    ann.network.follow(f"{KEY}00/ephemeral/presence/@bob:{MAX_ANNOUNCED}", there.append)
    assert there == []
    ends[0]()
    wait_for(lambda: there == [True], what="the next one, in the place of one that ended")
    joined(ann, bob)
    assert ann.links.shut_out() == {}
    assert 2 * MAX_ANNOUNCED < MAX_DECLARED < MAX_CHANGES


def test_however_many_rooms_there_are_one_pattern_is_declared(tmp_path: Path, stack: ExitStack) -> None:
    ann, bob = three(tmp_path, stack)
    heard: list[str] = []
    for number in range(3_000):
        bob.network.subscribe(f"{KEY}{number}/config/updates", lambda sample: heard.append(sample.key))
        bob.network.serve(f"{KEY}{number}/config/state", lambda query: query.reply(b"yes"))
    joined(ann, bob)
    assert ann.links._shut_out.declared[public(BOB)].count < 10
    ann.network.publish(f"{KEY}2999/config/updates", b"x", b"", DATA)
    wait_for(lambda: heard == [f"{KEY}2999/config/updates"], what="what is published")
    assert ann.links.shut_out() == {}


@pytest.mark.timeout(240)
def test_status_names_who_was_shut_out_and_why(tmp_path: Path) -> None:
    with two_daemons(tmp_path) as (alice, bob):
        bob.run("down")
        bob.wait_gone()
        eve = Declarer(identity_key(bob.home), public(identity_key(alice.home)), bus_port(alice.home))
        try:
            wait_for(eve.peers, WAIT_SECONDS, "her link")
            eve.declare("queryable", f"{KEY}00/config/state")

            def told() -> bool:
                remarks: list[str] = Typing(alice).json("status")["remarks"]
                return any(
                    "bob said on the bus of rooms what no Sublet says (a key that no daemon declares)" in one
                    for one in remarks
                )

            wait_for(told, WAIT_SECONDS, "who it is, and why")
        finally:
            eve.close()
