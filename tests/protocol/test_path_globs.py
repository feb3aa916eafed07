"""The engine of globs over paths, against the plainest definition, and what a hostile pattern costs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.path_globs import PathGlob
from sublet.protocol.patterns import glob

Parts = Sequence[str | None]


def made(pattern: Parts) -> PathGlob[str]:
    return PathGlob([None if part is None else glob(part).match for part in pattern])


def plainly(pattern: Parts, path: Sequence[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] is None:
        return any(plainly(pattern[1:], path[at:]) for at in range(len(path) + 1))
    return bool(path and glob(pattern[0]).match(path[0])) and plainly(pattern[1:], path[1:])


parts = st.lists(st.sampled_from(["a", "b", "*", "a*", None, None]), min_size=1, max_size=5)
paths = st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=5)


@given(parts, paths)
def test_it_matches_what_the_definition_says(pattern: Parts, path: list[str]) -> None:
    assert made(pattern).matches(path) is plainly(pattern, path)


@given(parts, paths, paths)
def test_a_match_may_be_below_each_directory_on_its_way(pattern: Parts, path: list[str], rest: list[str]) -> None:
    if plainly(pattern, path + rest):
        assert made(pattern).may_match_below(path)


@given(parts, paths)
def test_it_ends_in_the_last_component_of_each_match(pattern: Parts, path: list[str]) -> None:
    if path and plainly(pattern, path):
        assert made(pattern).ends_in(path[-1])


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        (["a", "b"], [], True),
        (["a", "b"], ["a"], True),
        (["a", "b"], ["b"], False),
        (["a", "b"], ["a", "b"], False),
        (["a"], [], True),
        ([None, "a", "b"], [], False),
        ([None, "a", "b"], ["x"], False),
        ([None, "a", "b"], ["x", "a"], True),
        ([None, "a", "b"], ["a", "x"], False),
        ([None, "a", "b", "c"], ["x", "a", "b"], True),
        ([None, "a"], ["a"], False),
    ],
)
def test_what_leads_to_a_match(pattern: Parts, path: list[str], expected: bool) -> None:
    assert made(pattern).leads_on(path) is expected


@pytest.mark.parametrize("stars", [["a"], [None, "*"], [None, "a", None, "*"], [None, None]])
def test_a_hostile_pattern_costs_a_test_for_each_pair_at_most(stars: list[str | None]) -> None:
    tests = 0

    def counted(name: str) -> bool:
        nonlocal tests
        tests += 1
        return True

    pattern = [None if part is None else counted for part in stars * 20] + [lambda name: name == "b"]
    path = ["a"] * 60 + ["b"]
    PathGlob[str](pattern).matches(path)
    assert tests <= len(pattern) * len(path)
