"""Tokens of ours have a bound, and whoever follows one of theirs hears of it on whatever link it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sublet.messaging.backends import tokens as tokens_module
from sublet.messaging.backends.tokens import Announced, Following, Tokens


def test_of_very_many_the_first_are_announced_and_others_as_these_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "MAX_ANNOUNCED", 2)
    live: list[str] = []

    def declare(key: str) -> Callable[[], None]:
        live.append(key)
        return lambda: live.remove(key)

    announced = Announced(declare)
    ends = {key: announced.add(key) for key in "abcd"}
    assert live == ["a", "b"]
    ends["c"]()
    ends["a"]()
    assert live == ["b", "d"]
    for end in ends.values():
        end()
        end()
    assert live == []


def test_a_token_is_there_while_it_is_on_any_link() -> None:
    tokens, told = Tokens(), list[bool]()
    tokens.took("bob", "key", there=True)
    end = tokens.follow("key", Following(told.append))
    assert told == [True]
    tokens.took("carol", "key", there=True)
    tokens.took("bob", "key", there=False)
    assert told == [True]
    tokens.gone("carol")
    assert told == [True, False]
    tokens.took("bob", "other", there=True)
    assert told == [True, False]
    end()
    tokens.took("bob", "key", there=True)
    assert told == [True, False]
    assert tokens.count() == 2
    tokens.gone("bob")
    assert tokens.count() == 0
