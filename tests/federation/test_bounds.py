"""What is remembered of a node, what is answered to it, and how long it is waited for, each within its bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sublet.federation import neighbours
from sublet.federation.asking import LATE_SECONDS, MAX_PENDING_PIECES, PROBE_SECONDS
from sublet.federation.neighbours import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Neighbour, Neighbours
from sublet.federation.node import MAX_COMPARED
from sublet.federation.ports import KnownNode
from sublet.federation.post import ENVELOPES_AT_ONCE, MAX_RECEIPT_BYTES, MAX_WHY_CHARS, _receipt, receipt_bytes
from sublet.federation.presence import JITTER, LEAVE_SECONDS
from sublet.federation.settings import Settings
from sublet.federation.working import MAX_TASKS, MAX_TASKS_OF_NODE
from sublet.protocol.federation.addresses import NodeName
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from support.federation_world import Ledger


def neighbour() -> Neighbour:
    return Neighbour(KnownNode("node-a", b"k" * 32, "SHA256:a", "bob"))


def test_an_id_is_new_once_and_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MAX_SEEN", 2)
    bob = neighbour()
    assert [bob.first_seen(one) for one in ("$1", "$1", "$2", "$3")] == [True, False, True, True]
    assert len(bob.seen) == 2


def test_who_is_not_reached_is_tried_later_each_time_and_at_once_when_it_was_back() -> None:
    assert neighbour().state == "silent"
    bob = neighbour()
    for _ in range(10):
        bob.lost(100.0)
    assert (bob.due, bob.pause) == (100.0 + LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    bob.found()
    assert (bob.state, bob.pause) == ("reached", FIRST_PAUSE_SECONDS)
    other = neighbour()
    other.refused = "it goes by another name"
    assert other.state == "refused"


def test_a_receipt_comes_as_it_was_sent_and_anything_else_is_a_refusal() -> None:
    taken = _receipt(receipt_bytes("$1", known=False))
    assert (taken.accepted, taken.known) == (True, False)
    refused = _receipt(receipt_bytes("$1", TaskRefused(FederationCode.AGENT_BUSY, "full", "rate"))).refusal
    assert refused is not None
    assert (refused.code, refused.message, refused.reason) == (FederationCode.AGENT_BUSY, "full", "rate")
    for raw in (b"", b"[]", b'{"accepted": 1}', b'{"accepted": false, "error": ["AGENT_BUSY"]}', b"x" * 10_000):
        odd = _receipt(raw)
        assert not odd.accepted
        assert odd.refusal is not None
        assert odd.refusal.code is FederationCode.INVALID_PAYLOAD


@pytest.mark.parametrize("letter", ["a", "\\", "\N{CJK UNIFIED IDEOGRAPH-4E00}", "\N{GRINNING FACE}"])
def test_a_receipt_keeps_to_its_bound_whatever_is_said(letter: str) -> None:
    raw = receipt_bytes("$" + "x" * 127, TaskRefused(FederationCode.AGENT_BUSY, letter * 1_000, "rate"))
    assert len(raw) <= MAX_RECEIPT_BYTES
    refused = _receipt(raw).refusal
    assert refused is not None
    assert refused.message == letter * MAX_WHY_CHARS


def test_what_the_person_calls_a_paired_daemon_wins_over_a_name_of_the_file() -> None:
    paired = KnownNode("node-a", b"a" * 32, "SHA256:a", "bob")
    listed = KnownNode("node-b", b"b" * 32, "SHA256:b", "bob", paired=False)
    for order in ([paired, listed], [listed, paired]):

        def known(order: list[KnownNode] = order) -> list[KnownNode]:
            return order

        neighbours = Neighbours(NodeName("ann.local"), known, lambda _: None, Ledger(), Settings, lambda _: None)
        neighbours.refresh()
        found = neighbours.by_alias("bob")
        assert found is not None
        assert found.node == paired


def test_who_is_listed_after_its_pairing_has_ended_is_a_new_node_that_repeats_nothing() -> None:
    known = [KnownNode("node-a", b"a" * 32, "SHA256:a", "bob")]
    neighbours = Neighbours(NodeName("ann.local"), lambda: known, lambda _: None, Ledger(), Settings, lambda _: None)
    neighbours.refresh()
    before = neighbours.by_id("node-a")
    assert before is not None
    before.first_seen("$1")
    known[0] = replace(known[0], alias="bob.local", paired=False)
    assert neighbours.refresh() == [before]
    after = neighbours.by_id("node-a")
    assert after is not None
    assert not neighbours.has(before)
    assert "$1" in after.seen
    assert neighbours.refresh() == []


def test_bounds_fit_each_other() -> None:
    assert MAX_TASKS_OF_NODE < MAX_TASKS < ENVELOPES_AT_ONCE
    assert MAX_PENDING_PIECES > 1, "the last place is the result's"
    assert LATE_SECONDS < PROBE_SECONDS
    assert 0 < JITTER < 1
    assert LEAVE_SECONDS < 5, "a stop takes less than that"
    assert MAX_COMPARED > 1
