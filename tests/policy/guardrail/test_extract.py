"""What JSON is found in a reply, in which order, and what was mended to read it."""

from __future__ import annotations

import pytest

from sublet.policy.guardrail import extract
from sublet.policy.guardrail.extract import MAX_CANDIDATES, ReplyPlace, candidates
from sublet.policy.guardrail.relaxed import Mend, Steps, TooManySteps
from sublet.protocol.canonical import JsonValue


def values(reply: str) -> list[JsonValue]:
    return [one.value for one in candidates(reply)]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"a": 1}', [{"a": 1}]),
        ("  42 \n", [42]),
        ("true", [True]),
        ('Sure! {"a": 1} Hope this helps.', [{"a": 1}]),
        ('```json\n{"a": 1}\n```', [{"a": 1}]),
        ('```json {"a": 1}```', [{"a": 1}]),
        ('~~~\n{"a": 1}\n~~~', [{"a": 1}]),
        ('```json\n{"a": 1}', [{"a": 1}]),
        ("```true```", [True]),
        ('before {"x": 0}\n```\n{"b": 2}\n```\n```json\n{"a": 1}\n``` after', [{"a": 1}, {"b": 2}, {"x": 0}]),
        ('{"a": 1} and {"a": 2}', [{"a": 1}, {"a": 2}]),
        ('{"a": {"b": 1}}', [{"a": {"b": 1}}]),
        ("as said in [the notes], {see below}: [1, 2]", [[1, 2]]),
        ('{"text": "a } and a ```json\\n{} in a string"}', [{"text": "a } and a ```json\n{} in a string"}]),
        ("no json at all", []),
        ("", []),
    ],
)
def test_values_are_found_in_order_of_place(reply: str, expected: list[JsonValue]) -> None:
    assert values(reply) == expected


@pytest.mark.parametrize(
    ("reply", "value", "mends"),
    [
        ("{“a”: “b”}", {"a": "b"}, {Mend.SMART_QUOTES}),
        ('{“a”: "b"}', {"a": "b"}, {Mend.SMART_QUOTES}),
        ("{'a': 'it's fine', 'b': None}", {"a": "it's fine", "b": None}, {Mend.SINGLE_QUOTES, Mend.PYTHON_WORD}),
        ('{"a": [1, 2,], }', {"a": [1, 2]}, {Mend.TRAILING_COMMA}),
        ('{"a": "two\nlines"}', {"a": "two\nlines"}, {Mend.RAW_CONTROL}),
        ('{"a": "cut o', {"a": "cut o"}, {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ('{"a": "cut \\', {"a": "cut "}, {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ('{"a": "cut \\u00', {"a": "cut "}, {Mend.CUT_OFF_STRING, Mend.CUT_OFF_CONTAINER}),
        ('{"a": [1, {"b": 2', {"a": [1, {}]}, {Mend.CUT_OFF_CONTAINER}),
        ('{"a": 1, "b', {"a": 1}, {Mend.CUT_OFF_CONTAINER}),
        ('{"a": 1, "b": tru', {"a": 1}, {Mend.CUT_OFF_CONTAINER}),
        ('{"a": 1, "b": -', {"a": 1}, {Mend.CUT_OFF_CONTAINER}),
        ('{"a": 1, "b": 2.', {"a": 1}, {Mend.CUT_OFF_CONTAINER}),
        ("[", [], {Mend.CUT_OFF_CONTAINER}),
    ],
)
def test_the_way_of_writing_is_mended_and_named(reply: str, value: JsonValue, mends: set[Mend]) -> None:
    [found] = candidates(reply)
    assert found.value == value
    assert set(found.mends) == mends


def test_half_a_number_is_left_out_rather_than_guessed() -> None:
    [found] = candidates('{"pid": 12')
    assert found.value == {}


@pytest.mark.parametrize(
    "reply",
    [
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": 90071992547409931}',
        '{"a": "\\ud800"}',
        '{"a" 1}',
        "{a: 1}",
        "[1 2]",
        '{"a": "C:\\temp\\q"}',
        "[" * 5000,
    ],
)
def test_what_has_no_one_meaning_is_no_candidate(reply: str) -> None:
    assert values(reply) == []


def test_the_number_of_candidates_is_bounded() -> None:
    found = candidates('x {"a": 1} ' * 1000)
    assert len(found) == MAX_CANDIDATES
    assert {one.place for one in found} == {ReplyPlace.PROSE}


@pytest.mark.parametrize(
    "reply", ["[" * 200_000, '["' * 100_000, "[1," * 80_000 + "x", "```" * 80_000, "{'a':'" * 40_000]
)
def test_hostile_replies_take_bounded_time(reply: str) -> None:
    assert len(candidates(reply)) <= MAX_CANDIDATES


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("\ufeff 42", [42]),
        ('42 ```\n{"a": 1}\n``` 7', [{"a": 1}]),
        ("see {'a': 1} there", [{"a": 1}]),
        ("see [[1] x", [[1]]),
        ("```X\n[1]\n```", [[1]]),
        ("```json5\r\n[1]\r\n``` [2]", [[1], [2]]),
        ("```-1.5``` ~~~ 7 ~~~", [-1.5, 7]),
        ("```json", []),
        ('x {"a": 1} ' * MAX_CANDIDATES + "```json\n[7]\n```", [{"a": 1}] * MAX_CANDIDATES),
    ],
)
def test_what_stands_where_in_a_reply(reply: str, expected: list[JsonValue]) -> None:
    assert values(reply) == expected


@pytest.mark.parametrize("reply", ["{'a': 1}", "['a']", " {'a': 1"])
def test_a_reply_that_is_mended_from_end_to_end_is_the_whole(reply: str) -> None:
    [found] = candidates(reply)
    assert (found.place, bool(found.mends)) == (ReplyPlace.WHOLE, True)


@pytest.mark.parametrize(
    ("reply", "steps"),
    [
        ("{'a': 1}", 3),
        ("x ```\n{'a': 1}\n```", 3),
        ("x ```\n{'a': 1} y\n```", 6),
        ("x {'a': 1} y", 3),
        ("x [" + "1, " * 32 + "z", 40),
    ],
)
def test_all_looks_for_values_share_their_steps(monkeypatch: pytest.MonkeyPatch, reply: str, steps: int) -> None:
    monkeypatch.setattr(extract, "Steps", lambda: Steps(steps))
    candidates(reply)
    monkeypatch.setattr(extract, "Steps", lambda: Steps(steps - 1))
    with pytest.raises(TooManySteps):
        candidates(reply)
