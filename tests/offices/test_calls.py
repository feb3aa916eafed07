"""Calls under way are bounded for each member, and end with either of the two."""

from __future__ import annotations

from functools import partial

from sublet.offices.calls import MAX_CALL_BYTES, MAX_CALLS, Call, Calls


def call(number: int, *, agent: str = "a", computer: str = "c", size: int = 1) -> Call:
    return Call(agent, computer, str(number), "tool", size, lambda: None)


def test_a_member_has_so_many_calls_and_no_more() -> None:
    calls = Calls()
    made = [call(number) for number in range(MAX_CALLS)]
    assert [calls.begin(one) for one in made] == [None] * MAX_CALLS
    assert calls.begin(call(-1, agent="b")) == "too many calls are under way"
    calls.end(made[0])
    calls.end(made[0])
    assert calls.begin(call(-1, agent="b")) is None


def test_their_bytes_are_bounded_too() -> None:
    calls = Calls()
    assert calls.begin(call(1, size=MAX_CALL_BYTES)) is None
    assert calls.begin(call(2)) == "too many calls are under way"
    assert calls.begin(call(2, agent="b", computer="d")) is None


def test_an_agent_uses_the_id_of_a_request_once_at_a_time() -> None:
    calls = Calls()
    assert calls.begin(call(1)) is None
    assert calls.begin(call(1, computer="d")) == "a call with this req_id is under way"
    assert calls.begin(call(1, agent="b")) is None


def test_a_call_ends_with_either_side() -> None:
    calls, ended = Calls(), list[str]()
    for one in ("a", "c"):
        made = Call("a", "c", one, "tool", 1, partial(ended.append, one))
        assert calls.begin(made) is None
        calls.gone(one)
        calls.gone(one)
    assert ended == ["a", "c"]
    assert calls.of("a") == calls.of("c") == []
