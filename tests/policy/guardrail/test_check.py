"""One reply against one schema, told as a whole: what passes with which repairs, and what fails with which words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sublet.policy.guardrail import check as checking
from sublet.policy.guardrail.check import Passed, check
from sublet.policy.guardrail.evidence import MAX_KEPT_CHARS, NOTHING_WITHIN, TOO_LONG, evidence, judge_again
from sublet.policy.guardrail.extract import MAX_REPLY_CHARS
from sublet.policy.guardrail.failure import Failed, FailureKind, Issue
from sublet.policy.guardrail.mask import Mask
from sublet.policy.guardrail.relaxed import TooManySteps
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Documented, document

NUMBERED: dict[str, JsonValue] = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}


def checked(reply: str, schema: Mapping[str, JsonValue] = NUMBERED, mask: Mask | None = None) -> Passed | Failed:
    return check(reply, CheckedSchema(schema), mask)


def one(kind: FailureKind, words: str, count: int = 0) -> Failed:
    return Failed(kind, (Issue("", words),), count)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (" ", one(FailureKind.EMPTY, "the reply is empty")),
        ("none", one(FailureKind.NO_JSON, "the reply holds no JSON value")),
        ('{"n": 1}', Passed({"n": 1}, ())),
        ("{'n': 1,}", Passed({"n": 1}, ("single_quotes", "trailing_comma"))),
        ('{"n": "1"}', Passed({"n": 1}, ("converted /n to integer",))),
        ("{'n': '1'}", Passed({"n": 1}, ("single_quotes", "converted /n to integer"))),
        ('{"n": "1"} ```json\n{"n": "2"}\n```', Passed({"n": 2}, ("converted /n to integer",))),
        ('{"n": "1"} {\'n\': 2}', Passed({"n": 2}, ("single_quotes",))),
        ("{'n': 1} {\"n\": 2}", Passed({"n": 2}, ())),
        (
            '{"n": 1} {"n": 2}',
            one(
                FailureKind.AMBIGUOUS,
                "the reply holds 2 different values that all satisfy the schema; send exactly one",
                2,
            ),
        ),
        ('{"n": "x"}', Failed(FailureKind.INVALID, (Issue("/n", "'x' is not of type 'integer'", "type"),), 1)),
    ],
)
def test_what_comes_of_a_reply(reply: str, found: Passed | Failed) -> None:
    assert checked(reply) == found


def test_of_values_that_all_fail_the_one_that_is_nearest_is_told() -> None:
    schema: dict[str, JsonValue] = {"required": ["a", "b"]}
    found = Failed(FailureKind.INVALID, (Issue("", "'b' is a required property", "required"),), 3)
    assert checked('{} {"a": 1} {}', schema) == found


def test_a_reply_of_just_the_most_characters_is_read() -> None:
    most = '"' + "a" * (MAX_REPLY_CHARS - 2) + '"'
    assert checked(most, {"type": "string"}) == Passed(most[1:-1], ())
    words = f"the reply has {MAX_REPLY_CHARS + 1} characters, and at most {MAX_REPLY_CHARS} are read"
    assert checked(most + " ", {"type": "string"}) == one(FailureKind.TOO_LARGE, words)


def test_a_reply_that_takes_too_many_steps_fails_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(reply: str) -> list[Any]:
        raise TooManySteps

    monkeypatch.setattr(checking, "candidates", too_many)
    words = "it takes too many steps to find the JSON in the reply"
    assert checked('{"n": 1}') == one(FailureKind.TOO_LARGE, words)


@pytest.mark.parametrize(
    ("schema", "reply", "mask", "steps", "found"),
    [
        ({"type": "object"}, '{"a": 1} {"b": 2}', None, 2, FailureKind.AMBIGUOUS),
        ({"type": "object"}, '{"a": 1} {"b": 2}', None, 1, {"a": 1}),
        ({"type": "object"}, '{"a": 1, "x": 2}', "/a", 2, {"a": 1}),
        ({"type": "object"}, '{"a": 1, "x": 2}', "/a", 1, "bound"),
        ({"properties": {"a": {"type": "integer"}}}, '{"a": "1"}', None, 4, {"a": 1}),
        ({"properties": {"a": {"type": "integer"}}}, '{"a": "1"}', None, 3, "bound"),
        ({"type": "integer"}, '{"a": 1}', None, 1, "type"),
    ],
)
def test_all_checks_of_a_reply_share_their_steps(
    monkeypatch: pytest.MonkeyPatch, schema: dict[str, JsonValue], reply: str, mask: str | None, steps: int, found: Any
) -> None:
    monkeypatch.setattr(checking, "MAX_REPLY_STEPS", steps)
    result = checked(reply, schema, None if mask is None else Mask((mask,)))
    if isinstance(result, Passed):
        assert result.value == found
    else:
        assert found in (result.kind, result.issues[0].keyword)


@pytest.mark.parametrize(
    ("reply", "mask", "kept", "why"),
    [
        ("no", None, {"reply": "no"}, None),
        ("{'n': '1'}", None, {"reply": "{'n': '1'}"}, None),
        ("r" * MAX_KEPT_CHARS, None, {"reply": "r" * MAX_KEPT_CHARS}, None),
        ("r" * (MAX_KEPT_CHARS + 1), None, None, TOO_LONG),
        (" ", Mask(("/n",)), {"reply": " "}, None),
        ("no", Mask(("/n",)), None, NOTHING_WITHIN),
        (
            "x {'n': 1, 'x': 2} [{'n': 3},]",
            Mask(("/n", "/0/n")),
            {
                "found": [
                    {"value": {"n": 1}, "place": 3, "mends": ["single_quotes"]},
                    {"value": [{"n": 3}], "place": 3, "mends": ["single_quotes", "trailing_comma"]},
                ],
                "count": 2,
            },
            None,
        ),
    ],
)
def test_what_is_kept_of_a_check(reply: str, mask: Mask | None, kept: Any, why: str | None) -> None:
    rules, found = document(NUMBERED), None if kept is None else document(kept)
    assert rules is not None
    data: dict[str, JsonValue] = {
        "schema": rules.digest,
        "mask": None if mask is None else list(mask.fields),
        "kept": None if found is None else found.digest,
    }
    if why is not None:
        data["notKept"] = why
    documents = (rules,) if found is None else (rules, found)
    assert evidence(reply, CheckedSchema(NUMBERED), mask) == Documented(data, documents)
    if kept is not None:
        assert judge_again(CheckedSchema(NUMBERED), kept) == checked(reply, mask=mask)


def test_values_that_were_kept_are_judged_by_their_places_and_mends() -> None:
    def kept(*found: tuple[int, int, list[str]]) -> Any:
        return {"found": [{"value": {"n": n}, "place": place, "mends": mends} for n, place, mends in found], "count": 7}

    schema = CheckedSchema(NUMBERED)
    assert judge_again(schema, kept((1, 3, []), (2, 1, []))) == Passed({"n": 2}, ())
    assert judge_again(schema, kept((1, 3, []), (2, 1, ["single_quotes"]))) == Passed({"n": 1}, ())
    assert judge_again(schema, kept((1, 3, ["single_quotes"]))) == Passed({"n": 1}, ("single_quotes",))
    again = judge_again(schema, kept((1, 3, []), (2, 3, [])))
    assert isinstance(again, Failed)
    assert (again.kind, again.candidates) == (FailureKind.AMBIGUOUS, 7)
    wrongs: list[Any] = [kept((1, 4, [])), kept((1, -1, [])), kept((1, 0, ["x"])), {"found": [], "more": 1}, None]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="can't be read"):
            judge_again(schema, wrong)
