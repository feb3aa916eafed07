"""An index of patterns finds what trying each of them would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.policy import pattern_index
from sublet.policy.globs import matcher
from sublet.policy.pattern_index import PatternIndex

parts = st.sampled_from(["*", "a", "b", "file", ".", "?", "x*y"])
patterns = st.lists(parts, min_size=1, max_size=4).map("".join)
names = st.lists(st.sampled_from(["a", "b", "file", ".", "xy", "x", "y"]), max_size=5).map("".join)


@given(st.lists(patterns, max_size=8), st.lists(names, max_size=6))
def test_it_finds_what_each_pattern_alone_would(given_patterns: list[str], asked: list[str]) -> None:
    index = PatternIndex((pattern, number) for number, pattern in enumerate(given_patterns))
    for name in (*asked, *asked):  # the second time as it is remembered
        wanted = [number for number, pattern in enumerate(given_patterns) if matcher(pattern)(name)]
        assert sorted(index.find(name)) == wanted
    assert sorted(index.values()) == list(range(len(given_patterns)))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_index, "MAX_REMEMBERED", 3)
    monkeypatch.setattr(pattern_index, "MAX_REMEMBERED_CHARS", 5)
    index = PatternIndex([("a*", 1)])
    for number in range(10):
        assert index.find(f"a{number}") == [1]
        assert len(index._known) <= 3
    assert index.find("a" * 100) == [1]
    assert all(len(name) <= 5 for name in index._known), "a long name is not kept"


def test_a_beginning_is_a_name_as_well() -> None:
    index = PatternIndex([("ab*", 1), ("abc*", 2), ("*", 3), ("a?", 4), ("ab", 5)])
    for _ in range(2):
        assert sorted(index.find("ab")) == [1, 3, 4, 5]
        assert sorted(index.find("abc")) == [1, 2, 3]
        assert sorted(index.find("a")) == [3]
        assert sorted(index.find("")) == [3]
    assert sorted(index.values()) == [1, 2, 3, 4, 5]
