"""What is read generously is read right: every liberty against what the strict reader says of the same value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.policy.guardrail import relaxed
from sublet.policy.guardrail.relaxed import (
    MAX_STEPS,
    Mend,
    Read,
    Steps,
    TooManySteps,
    Unreadable,
    read,
    strict_loads,
    strict_read,
)
from sublet.protocol.canonical import MAX_DEPTH

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
CONTAINERS = st.lists(VALUES, max_size=4) | st.dictionaries(TEXTS, VALUES, max_size=4)


def mends(text: str) -> set[Mend]:
    return set(read(text, 0).mends)


@given(CONTAINERS, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_what_is_json_is_read_as_it_is_with_nothing_mended(value: Any, plain: bool, indent: Any) -> None:
    text = json.dumps(value, ensure_ascii=plain, indent=indent)
    for before, behind in (("", ""), ("see ", " there"), ("[", "]]")):
        wanted = Read(value, len(before) + len(text), frozenset())
        assert read(before + text + behind, len(before)) == wanted
        assert strict_read(before + text + behind, len(before)) == wanted


@given(st.lists(st.booleans() | st.none() | st.integers(0, 99), min_size=1, max_size=5))
def test_words_of_python_are_those_of_json(value: list[Any]) -> None:
    found = read(repr(value), 0)
    assert found.value == value
    assert set(found.mends) == (
        {Mend.PYTHON_WORD} if any(one is None or isinstance(one, bool) for one in value) else set()
    )


@given(CONTAINERS, st.data())
def test_what_is_cut_off_is_a_beginning_of_the_whole(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    found = read(cut, 0)
    assert found.end == len(cut)
    assert Mend.CUT_OFF_CONTAINER in found.mends or Mend.CUT_OFF_STRING in found.mends
    assert found.mends <= {Mend.CUT_OFF_CONTAINER, Mend.CUT_OFF_STRING}
    assert begins(found.value, value)


def begins(part: Any, whole: Any) -> bool:
    """Tell whether a value is a beginning of another: nothing is invented, and nothing but the end is missing."""
    if isinstance(whole, dict):
        names = list(whole)[: len(part)]
        return list(part) == names and all(
            part[name] == whole[name] if name != names[-1] else begins(part[name], whole[name]) for name in names
        )
    if isinstance(whole, list):
        last = len(part) - 1
        return last < len(whole) and all(
            begins(one, whole[at]) if at == last else one == whole[at] for at, one in enumerate(part)
        )
    return bool(part == whole or (isinstance(whole, str) and isinstance(part, str) and whole.startswith(part)))


@pytest.mark.parametrize(
    ("text", "value", "mended"),
    [
        (r'["\" \\ \/ \b \f \n \r \t"]', ['" \\ / \b \f \n \r \t'], set()),
        (r'["\u0041\u00e9\uffFF"]', ["A\u00e9\uffff"], set()),
        (r'["\ud83d\ude00\udbff\udfff\ud800\udc00"]', ["\U0001f600\U0010ffff\U00010000"], set()),
        (r"""['it\'s "so"']""", ['it\'s "so"'], {Mend.SINGLE_QUOTES}),
        (r'["it\'s"]', ["it's"], set()),
        ("[\u2018a\u2019, \u201ab\u201b]", ["a", "b"], {Mend.SMART_QUOTES}),
        ("[“a”, „b‟, «c», \uff02d\uff02]", ["a", "b", "c", "d"], {Mend.SMART_QUOTES}),
        ("['a' , 'b'\n, 'c'\t]", ["a", "b", "c"], {Mend.SINGLE_QUOTES}),
        ("{'a' : 'b'}", {"a": "b"}, {Mend.SINGLE_QUOTES}),
        ("['don't, 'or' else']", ["don't, 'or' else"], {Mend.SINGLE_QUOTES}),
        ('[“say "yes" or "no”]', ['say "yes" or "no'], {Mend.SMART_QUOTES}),
        ('["a “b”, c"]', ["a “b”, c"], set()),
        ('{"a"\u00a0:\ufeff1 }', {"a": 1}, set()),
        ('["\x1f\t"]', ["\x1f\t"], {Mend.RAW_CONTROL}),
        ('["\x7f "]', ["\x7f "], set()),
        ("[1,]", [1], {Mend.TRAILING_COMMA}),
        ('{"a": 1 , }', {"a": 1}, {Mend.TRAILING_COMMA}),
        ("[-0, 0.5, 1e2, 1E+2, -1.5e-1]", [0, 0.5, 100.0, 100.0, -0.15], set()),
        ("[True, False, None]", [True, False, None], {Mend.PYTHON_WORD}),
        ("[[1, [2", [[1, []]], {Mend.CUT_OFF_CONTAINER}),
        ('["a", "b', ["a", "b"], {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ('{"a": "b", "c": "d', {"a": "b", "c": "d"}, {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ('["a\\ud83d\\', ["a"], {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ('["a\\ud83d', ["a"], {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ('["a\\ud83d\\ude', ["a"], {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ("[1, -", [1], {Mend.CUT_OFF_CONTAINER}),
        ("[1, - ", [1], {Mend.CUT_OFF_CONTAINER}),
        ("[1, 2.", [1], {Mend.CUT_OFF_CONTAINER}),
        ("[1, 2e", [1], {Mend.CUT_OFF_CONTAINER}),
        ("[1, 2.5e-", [1], {Mend.CUT_OFF_CONTAINER}),
        ("[1, 2E", [1], {Mend.CUT_OFF_CONTAINER}),
        ("[1, 2.E+", [1], {Mend.CUT_OFF_CONTAINER}),
        ("[“aX, b”]", ["aX, b"], {Mend.SMART_QUOTES}),
        ('["aX, b"]', ["aX, b"], set()),
        ("['aX]', 'b']", ["aX]", "b"], {Mend.SINGLE_QUOTES}),
        ('["\x1f"]', ["\x1f"], {Mend.RAW_CONTROL}),
        ('["\\ud800', [""], {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ('["\\udbff', [""], {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ('["\\ue000", "\\ud7ff"]', ["\ue000", "\ud7ff"], set()),
        ('{"a": 1, "b', {"a": 1}, {Mend.CUT_OFF_CONTAINER}),
        ("[1, fal", [1], {Mend.CUT_OFF_CONTAINER}),
        ("[1, true", [1], {Mend.CUT_OFF_CONTAINER}),
        ("[1,", [1], {Mend.CUT_OFF_CONTAINER}),
        ('{"a": 1, "b"', {"a": 1}, {Mend.CUT_OFF_CONTAINER}),
        ('{"a": 1, "b":', {"a": 1}, {Mend.CUT_OFF_CONTAINER}),
        ('{"a": "x', {"a": "x"}, {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
    ],
)
def test_each_liberty_is_named(text: str, value: Any, mended: set[Mend]) -> None:
    assert read(text, 0) == Read(value, len(text), frozenset(mended))


@pytest.mark.parametrize(
    "text",
    [
        '["\\x"]',
        '["\\u12g4"]',
        '["\\u12"]',
        '["a" b"]',
        '["\\udc00',
        '["\\udc00\\udc00"]',
        '["\\u12 "]',
        '["\\ud800"]',
        '["\\udfff"]',
        '["\\ud800\\ud800"]',
        '["\\ud800\\ue000"]',
        "[01]",
        "[1.]",
        "[.5]",
        "[+1]",
        "[1e]",
        "[1x]",
        "[1-2]",
        "[- 1]",
        "[--1]",
        "[TRUE]",
        "[undefined]",
        "[,]",
        "[1,,2]",
        "[1 2]",
        "[1:2]",
        '{"a", 1}',
        "{1: 2}",
        "{a: 1}",
        '{"a": 1 "b": 2}',
        '{"a": 1, "a": 1}',
        "(1)",
        "",
        " ",
        "-",
        "12",
        "tru",
    ],
)
def test_what_may_mean_two_things_is_not_read(text: str) -> None:
    with pytest.raises(Unreadable):
        read(text, 0)


def test_depth_is_bounded_for_objects_and_arrays() -> None:
    for opener, closer in (("[", "]"), ('{"a":', "}")):
        deepest = opener * MAX_DEPTH + "[]" + closer * MAX_DEPTH
        assert read(deepest, 0).end == len(deepest)
        with pytest.raises(Unreadable, match="nested"):
            read(opener + deepest + closer, 0)


@pytest.mark.parametrize(
    ("text", "steps"),
    [("[]", 1), ("[1, 2]", 3), ('{"a": 1}', 3), ('["a b"]', 3), ('["a\\nb"]', 4), ("['a']", 3), ("[[[]]]", 3)],
)
def test_each_value_and_each_piece_of_a_string_costs_a_step(text: str, steps: int) -> None:
    assert read(text, 0, Steps(steps)).end == len(text)
    with pytest.raises(TooManySteps):
        read(text, 0, Steps(steps - 1))


def test_what_was_read_strictly_in_vain_costs_by_its_length() -> None:
    text = "x" + "[" + "1," * 40 + "x"
    steps = Steps(5)
    with pytest.raises(Unreadable):
        strict_read(text, 1, steps)
    with pytest.raises(TooManySteps):
        steps.take()
    with pytest.raises(TooManySteps):
        strict_read(text, 1, Steps(4))
    with pytest.raises(TooManySteps):
        strict_read("[" * 100_000, 0, Steps(60))
    behind = Steps(5)
    with pytest.raises(Unreadable):
        strict_read("x" * 1_000 + text[1:], 1_000, behind)
    with pytest.raises(TooManySteps):
        behind.take()


def test_a_new_reader_has_all_steps() -> None:
    steps = Steps()
    steps.take(MAX_STEPS)
    with pytest.raises(TooManySteps):
        steps.take()
    assert relaxed.MAX_STEPS == 1_000_000


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[NaN]", "[-Infinity]", "", "[1", "[" * 100_000])
def test_the_strict_reader_takes_json_alone(text: str) -> None:
    with pytest.raises(Unreadable):
        strict_loads(text)
    with pytest.raises(Unreadable):
        strict_read(text, 0)
    assert strict_loads(' {"a": 1} ') == {"a": 1}
