"""A home is told from a copy of it, and which of both is the elder."""

from __future__ import annotations

import re

import pytest

from sublet.protocol.errors import LocalCode
from sublet.protocol.home_token import MAX_ELDERS, HomeToken, is_copy, new_token, parse_home

ONE, TWO = "0" * 16, "a" * 16


@pytest.mark.parametrize(
    ("said", "home"),
    [
        (ONE, HomeToken(ONE)),
        (f"{ONE}.{TWO}", HomeToken(ONE, (TWO,))),
        (".".join([ONE] * 9), HomeToken(ONE, (ONE,) * 8)),
        (".".join([ONE] * 10), None),
        (f"{ONE}.", None),
        ("", None),
        (f"{ONE}0", None),
        (ONE[1:], None),
        (f"{ONE},{TWO}", None),
        ("A" * 16, None),
        (f"{ONE}.{'g' * 16}", None),
        (f"{ONE}\n", None),
        (None, None),
        (7, None),
        ([ONE], None),
    ],
)
def test_what_a_daemon_says_of_its_home(said: object, home: HomeToken | None) -> None:
    assert parse_home(said) == home
    if home is not None:
        assert home.said == said


def test_a_home_that_moves_names_those_that_it_was() -> None:
    first = HomeToken(ONE)
    second = first.moved()
    assert second.elders == (ONE,)
    assert re.fullmatch("[0-9a-f]{16}", second.token)
    assert (second.comes_from(first), first.comes_from(second), first.comes_from(first)) == (True, False, False)
    many = first
    for _ in range(20):
        many, before = many.moved(), many
        assert many.elders == (before.token, *before.elders)[:MAX_ELDERS]
        assert parse_home(many.said) == many
    assert len(many.elders) == MAX_ELDERS == 8
    assert len({new_token() for _ in range(50)}) == 50
    assert is_copy().code is LocalCode.HOME_COPIED
