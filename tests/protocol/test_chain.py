"""No chain of calls goes in a loop, nests without end or outlives its lease, however it is spelt (C37)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.chain import Chain, address, canonical_address, check_call
from sublet.protocol.errors import LocalCode, SubletError

AGENTS = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,8}", fullmatch=True)
NODES = st.from_regex(r"node-[a-z2-7]{16}", fullmatch=True)
ADDRESSES = st.builds(address, AGENTS, NODES)


def refusal(chain: Chain, target: str, max_depth: int = 4) -> SubletError | None:
    try:
        check_call(chain, target, max_depth=max_depth)
    except SubletError as error:
        return error
    return None


def spelt(text: str, flips: list[bool]) -> str:
    """Return ``text`` in another case."""
    return "".join(c.upper() if flip else c for c, flip in zip(text, [*flips, *[False] * len(text)], strict=False))


@given(st.lists(ADDRESSES, unique=True, min_size=1, max_size=12), st.data())
def test_a_loop_of_any_length_is_refused_whatever_its_spelling(callers: list[str], data: st.DataObject) -> None:
    again = data.draw(st.sampled_from(callers))
    target = spelt(again, data.draw(st.lists(st.booleans(), max_size=20)))
    written = [spelt(one, data.draw(st.lists(st.booleans(), max_size=20))) for one in callers]
    refused = refusal(Chain(tuple(written)), target, max_depth=32)
    assert refused is not None
    assert refused.code is LocalCode.LOOP_REFUSED
    assert all(one.lower() in refused.message.lower() for one in callers)


@given(st.lists(ADDRESSES, unique=True, min_size=1, max_size=12), st.integers(0, 12))
def test_depth_is_bounded_and_nothing_else_refused(addresses: list[str], max_depth: int) -> None:
    *callers, target = addresses
    refused = refusal(Chain(tuple(callers), "lse_1", 5.0), target, max_depth)
    if len(callers) <= max_depth:
        assert refused is None
    else:
        assert refused is not None
        assert refused.code is LocalCode.DEPTH_REFUSED
        assert target in refused.message


@given(st.lists(st.one_of(st.none(), st.floats(0.001, 1e6)), min_size=1, max_size=8))
def test_a_call_never_outlives_its_caller(times: list[float | None]) -> None:
    chain = Chain()
    least: float | None = None
    for number, ttl in enumerate(times):
        chain = chain.called_by(f"a{number}@node-x", lease_id=f"lse_{number}", ttl=ttl)
        least = ttl if least is None else least if ttl is None else min(least, ttl)
        assert chain.ttl == least
        assert chain.nesting_depth == number + 1


@given(st.text(max_size=250))
def test_what_is_no_address_is_refused(text: str) -> None:
    refused = refusal(Chain(), text)
    if refused is not None:
        assert refused.code is LocalCode.INVALID_ARGUMENT
        return
    assert canonical_address(text) == text.lower()
    assert text.count("@") == 1
    assert text.isascii()


@pytest.mark.parametrize("lookalike", ["shell@nodе-x", "ѕhell@node-x", "shell@node-x\u200b", "shell@@node-x"])  # noqa: RUF001
def test_a_lookalike_is_no_address(lookalike: str) -> None:
    refused = refusal(Chain(("shell@node-x",)), lookalike)
    assert refused is not None
    assert refused.code is LocalCode.INVALID_ARGUMENT


def test_a_chain_that_loops_already_and_a_lease_that_is_over_are_refused() -> None:
    looped = refusal(Chain(("a@n", "b@n", "A@N")), "c@n")
    late = refusal(Chain(("a@n",), "lse_1", 0.0), "c@n")
    assert looped is not None
    assert late is not None
    assert (looped.code, late.code) == (LocalCode.LOOP_REFUSED, LocalCode.LEASE_OVER)
