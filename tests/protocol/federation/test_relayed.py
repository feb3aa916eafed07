"""What two nodes say over a relay is opened by the two alone, as what it is, and no answer is given for another."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.protocol.federation.envelope import MAX_ENVELOPE_BYTES
from sublet.protocol.federation.errors import TaskRefused
from sublet.protocol.federation.relayed import (
    MAX_ANSWER_BYTES,
    MAX_BOXES,
    MAX_QUESTION_BYTES,
    RelayedQuestion,
    RelaySeals,
)
from sublet.protocol.federation.relayed_keys import relayed_between, relayed_key
from sublet.protocol.ids import node_id

ANN, BOB, EVE = (SigningKey(letter * 32) for letter in (b"a", b"b", b"e"))
FROM_ANN, FROM_BOB, FROM_EVE = map(RelaySeals, (ANN, BOB, EVE))
A, B, E = (bytes(one.verify_key) for one in (ANN, BOB, EVE))
NOW = 1_800_000_000_000


def read_answer(peer: bytes, what: str, raw: bytes) -> bytes:
    return FROM_BOB.read_answer(peer, what, b"1" * 16, raw)


def test_a_question_and_its_answer_are_read_by_the_two_alone() -> None:
    raw, one = FROM_ANN.ask(B, "event", b"who is there", NOW)
    question = FROM_BOB.read_question(A, "event", raw)
    assert question == RelayedQuestion(one, NOW, b"who is there")
    answer = FROM_BOB.answer(A, "event", question, b"I am")
    assert FROM_ANN.read_answer(B, "event", one, answer) == b"I am"
    assert b"who is there" not in raw
    assert b"I am" not in answer
    for seals, peer in ((FROM_EVE, A), (FROM_EVE, B), (FROM_BOB, E), (FROM_ANN, E)):
        with pytest.raises(TaskRefused):
            seals.read_question(peer, "event", raw)
        with pytest.raises(TaskRefused):
            seals.read_answer(peer, "event", one, answer)


def test_nothing_is_taken_for_something_else_that_the_same_two_have_said() -> None:
    raw, one = FROM_ANN.ask(B, "event", b"x", NOW)
    other, another = FROM_ANN.ask(B, "event", b"y", NOW)
    question = FROM_BOB.read_question(A, "event", raw)
    answer = FROM_BOB.answer(A, "event", question, b"yes")
    tries: list[Callable[[], object]] = [
        lambda: FROM_BOB.read_question(A, "server", raw),
        lambda: FROM_ANN.read_question(B, "event", raw),  # given back to who has asked
        lambda: FROM_ANN.read_question(B, "event", answer),
        lambda: FROM_ANN.read_answer(B, "event", one, raw),
        lambda: FROM_ANN.read_answer(B, "event", another, answer),  # of another question
        lambda: FROM_ANN.read_answer(B, "server", one, answer),
        lambda: FROM_BOB.read_answer(A, "event", one, answer),
    ]
    for one_of_them in tries:
        with pytest.raises(TaskRefused):
            one_of_them()
    assert FROM_BOB.read_question(A, "event", other).payload == b"y"


@given(st.data())
def test_a_change_of_any_bit_is_found(data: st.DataObject) -> None:
    raw, _ = FROM_ANN.ask(B, "server", b"", NOW)
    at = data.draw(st.integers(0, 8 * len(raw) - 1))
    changed = bytearray(raw)
    changed[at // 8] ^= 1 << at % 8
    with pytest.raises(TaskRefused):
        FROM_BOB.read_question(A, "server", bytes(changed))


@given(st.binary(max_size=400))
def test_what_nobody_sealed_is_refused(raw: bytes) -> None:
    for read in (FROM_BOB.read_question, read_answer):
        with pytest.raises(TaskRefused):
            read(A, "event", raw)


def test_sizes_are_bounded_and_tell_a_step() -> None:
    largest, _ = FROM_ANN.ask(B, "event", b"x" * MAX_ENVELOPE_BYTES, NOW)
    assert len(largest) <= MAX_QUESTION_BYTES
    assert FROM_BOB.read_question(A, "event", largest).payload == b"x" * MAX_ENVELOPE_BYTES
    for read, most in (
        (FROM_BOB.read_question, MAX_QUESTION_BYTES),
        (read_answer, MAX_ANSWER_BYTES),
    ):
        with pytest.raises(TaskRefused):
            read(A, "event", b"x" * (most + 1))
    sizes = {len(FROM_ANN.ask(B, "event", b"x" * size, NOW)[0]) for size in range(600)}
    assert all(after - before == 256 for before, after in pairwise(sorted(sizes)))


def test_a_key_that_is_none_is_refused_and_shared_keys_are_bounded() -> None:
    for broken in (b"\xff" * 32, b"\0" * 32, b"short"):
        with pytest.raises(TaskRefused):
            FROM_ANN.ask(broken, "event", b"", NOW)
    seals = RelaySeals(ANN)
    for number in range(MAX_BOXES + 20):
        seals.ask(bytes(SigningKey(number.to_bytes(32, "big")).verify_key), "server", b"", NOW)
    assert len(seals._boxes) == MAX_BOXES


def test_only_keys_between_two_nodes_are_such() -> None:
    ann, bob = node_id(A), node_id(B)
    assert relayed_between(relayed_key("event", bob, ann)) == (bob, ann)
    good = relayed_key("server", bob, ann)
    for key in (
        "ezagent/federation/event",
        f"ezagent/federation/event/{bob}",
        f"{good}/more",
        good.replace("server", "else"),
        good.replace("ezagent", "x"),
        good.replace(bob, "*"),
        good.replace(ann, "**"),
        good.replace(ann, ann.upper()),
        "",
        "/" * 100_000,
    ):
        assert relayed_between(key) is None, key[:80]
