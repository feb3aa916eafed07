"""Token buckets over random times, and who goes on with too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sublet.messaging.relay.buckets import Buckets, Rate
from sublet.messaging.relay.senders import CONTROL_COST, FLOOD_SECONDS, PIECE_BYTES, Senders

STEPS = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 10)), max_size=50)


@given(STEPS, st.floats(0.1, 20), st.floats(1, 30))
def test_nobody_gets_more_than_the_burst_and_what_has_come_since(
    steps: list[tuple[float, float]], per_second: float, burst: float
) -> None:
    now = 0.0
    buckets, taken = Buckets(Rate(per_second, burst), lambda: now), 0.0
    for pause, amount in steps:
        now += pause
        if buckets.take("alice", amount):
            taken += amount
        assert taken <= burst + now * per_second + 1e-6
        assert buckets.take("bob", 0)


def test_who_has_paused_gets_the_burst_again_and_others_are_not_asked_for_it() -> None:
    now = 0.0
    buckets = Buckets(Rate(1, 3), lambda: now)
    assert [buckets.take("alice") for _ in range(4)] == [True, True, True, False]
    assert buckets.take("bob", 3)
    now = 2.0
    assert [buckets.take("alice") for _ in range(3)] == [True, True, False]
    buckets.forget("alice")
    assert buckets.take("alice", 3)


def test_few_are_remembered() -> None:
    buckets = Buckets(Rate(1, 1), lambda: 0.0, most=2)
    for name in ("a", "b", "c"):
        assert buckets.take(name)
    assert buckets.take("a"), "whoever was forgotten begins anew"
    assert not buckets.take("c")


def test_a_larger_message_counts_as_more_and_so_does_what_the_relay_has_to_keep() -> None:
    senders = Senders(Rate(0.001, 100), lambda: 0.0)
    assert senders.may_send("a", 98 * PIECE_BYTES)
    assert not senders.may_send("a", PIECE_BYTES)
    assert [senders.may_send("b", 0, is_control=True) for _ in range(4)] == [
        n < 100 // (CONTROL_COST + 1) for n in range(4)
    ]
    assert senders.dropped == 2


def test_who_goes_on_with_too_much_is_told_once() -> None:
    now = 0.0
    senders = Senders(Rate(1, 1), lambda: now)
    told = []
    for _ in range(200):
        now += FLOOD_SECONDS / 100
        for _ in range(3):
            senders.may_send("eve", 0)
        told.append(senders.floods("eve"))
    assert sum(told) == 1 + (200 * FLOOD_SECONDS / 100 > 2 * FLOOD_SECONDS)
    assert not senders.floods("alice")
    senders.change(Rate(1e9, 1e9))
    now += 1
    assert senders.may_send("eve", 1 << 20)
