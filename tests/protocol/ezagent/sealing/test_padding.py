"""Lengths in steps: whoever counts bytes learns a step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.sealing.padding import LEAST_STEP, STEPS_OF_DOUBLING, pad, padded_size, unpad


@given(st.binary(max_size=5_000))
def test_what_was_padded_comes_back_and_its_length_is_that_of_a_step(plain: bytes) -> None:
    padded = pad(plain)
    assert unpad(padded) == plain
    assert len(padded) == padded_size(len(padded))


@given(st.integers(0, 1 << 24))
def test_at_most_an_eighth_is_added_and_never_less_than_the_least_step(size: int) -> None:
    padded = padded_size(size)
    assert padded >= max(size, LEAST_STEP)
    assert padded - size <= max(LEAST_STEP, size // STEPS_OF_DOUBLING + 1)


def test_there_are_few_lengths() -> None:
    assert {len(pad(bytes(size))) for size in range(LEAST_STEP - 3)} == {LEAST_STEP}
    assert len({padded_size(size) for size in range(4_097)}) == 16
    assert len({padded_size(size) for size in range(4_097, 1 << 20)}) == 8 * STEPS_OF_DOUBLING


@pytest.mark.parametrize(
    "wrong",
    [b"", b"\0\0\0", pad(b"one")[:-1], pad(b"one") + b"\0", pad(b"one")[:-1] + b"\1", b"\0\0\1\0" + bytes(252)],
)
def test_another_padding_is_refused(wrong: bytes) -> None:
    with pytest.raises(Refused):
        unpad(wrong)
