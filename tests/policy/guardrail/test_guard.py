"""Which reply passes, what is asked again, and how it ends where none does: the faults of the seed, each by name."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

import pytest

from sublet.policy.guardrail.check import Passed, check
from sublet.policy.guardrail.evidence import NOTHING_WITHIN, TOO_LONG, judge_again
from sublet.policy.guardrail.extract import MAX_REPLY_CHARS
from sublet.policy.guardrail.failure import MAX_ISSUES, Failed, FailureKind, Issue
from sublet.policy.guardrail.guard import Guarded, guarded
from sublet.policy.guardrail.mask import Mask
from sublet.policy.guardrail.options import MAX_QUOTED_CHARS, GuardOptions, GuardrailFailed
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Documented, unpacked
from sublet.protocol.errors import LocalCode, SubletError

REPORT: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "status": {"enum": ["completed", "failed"]},
        "count": {"type": "integer", "minimum": 0},
        "notes": {"type": "array", "items": {"type": "string"}, "default": []},
    },
    "required": ["status", "count", "notes"],
    "additionalProperties": False,
}
GOOD: dict[str, JsonValue] = {"status": "completed", "count": 1, "notes": []}
GOOD_TEXT = '{"status": "completed", "count": 1, "notes": []}'


def passed(reply: str, schema: Mapping[str, JsonValue] = REPORT, mask: Mask | None = None) -> JsonValue:
    result = check(reply, CheckedSchema(schema), mask)
    assert isinstance(result, Passed), result
    return result.value


def failed(reply: str, schema: Mapping[str, JsonValue] = REPORT, mask: Mask | None = None) -> Failed:
    result = check(reply, CheckedSchema(schema), mask)
    assert isinstance(result, Failed), result
    return result


def test_seed_two_objects_in_one_text() -> None:
    assert passed(f'My plan was {{"step": 1}}. The result: {GOOD_TEXT}') == GOOD


def test_seed_single_quotes() -> None:
    assert passed("{'status': 'completed', 'count': 1, 'notes': []}") == GOOD


def test_seed_cut_off_string() -> None:
    assert passed('{"status": "completed", "count": 1, "notes": ["half a se') == {**GOOD, "notes": ["half a se"]}


def test_seed_fence_that_is_not_the_whole_reply() -> None:
    assert passed(f"Here you are:\n```json\n{GOOD_TEXT}\n```\nAnything else?") == GOOD


@pytest.mark.parametrize(
    ("schema", "reply"),
    [
        ({"type": "integer"}, "1.5"),
        ({"type": "integer", "minimum": 3}, "1"),
        ({"type": "string", "pattern": "^a"}, '"b"'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "1"),
        ({"$ref": "#/$defs/s", "$defs": {"s": {"type": "string", "minLength": 2}}}, '"b"'),
    ],
)
def test_seed_keywords_that_passed_silently(schema: dict[str, JsonValue], reply: str) -> None:
    assert failed(reply, schema).kind is FailureKind.INVALID


def test_seed_no_mask_step() -> None:
    reply = '{"status": "completed", "count": 1, "notes": [], "apiKey": "secret"}'
    assert passed(reply, mask=Mask(("/status", "/count", "/notes"))) == GOOD
    assert failed(reply).kind is FailureKind.INVALID


def test_seed_no_step_that_fills_what_is_missing() -> None:
    assert passed('{"status": "completed", "count": 1}') == GOOD
    assert failed('{"count": 1}').issues[0].keyword == "required"


@pytest.mark.parametrize("reply", ["", " \n\t"])
def test_seed_empty_reply_skips_the_check(reply: str) -> None:
    assert failed(reply, {}).kind is FailureKind.EMPTY


def test_a_reply_that_is_too_long_is_not_cut_and_taken() -> None:
    assert failed(GOOD_TEXT + " " * MAX_REPLY_CHARS + "x").kind is FailureKind.TOO_LARGE


def test_prose_without_json_is_its_own_class() -> None:
    assert failed("I could not do it.").kind is FailureKind.NO_JSON


def test_what_needs_no_mending_counts_before_what_does() -> None:
    mended = "{'status': 'failed', 'count': 2, 'notes': []}"
    assert passed(f"{mended} {GOOD_TEXT}") == GOOD
    assert passed(f"```json\n{mended}\n```\n{GOOD_TEXT}") == GOOD


def test_the_better_place_counts_where_both_are_valid() -> None:
    other = GOOD_TEXT.replace("1", "2")
    assert passed(f"An example: {other}\n```json\n{GOOD_TEXT}\n```") == GOOD


def test_two_different_answers_in_equal_places_are_ambiguous() -> None:
    result = failed(f"{GOOD_TEXT} or {GOOD_TEXT.replace('1', '2')}")
    assert (result.kind, result.candidates) == (FailureKind.AMBIGUOUS, 2)
    assert passed(f'{GOOD_TEXT} again: {{"count": 1, "notes": [], "status": "completed"}}') == GOOD


def test_a_mask_that_takes_what_is_required_fails() -> None:
    result = failed('{"status": "completed", "count": 1, "notes": []}', mask=Mask(("/status",)))
    assert result.issues[0].keyword == "required"


class Agent:
    """Gives the replies it was given, and keeps the prompts."""

    def __init__(self, *replies: str) -> None:
        self._replies = iter(replies)
        self.prompts: list[str] = []
        self.events: list[Mapping[str, JsonValue]] = []
        self.documents: dict[str, JsonValue] = {}

    async def ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return next(self._replies)

    async def emit(self, told: Documented) -> None:
        self.events.append(told.data)
        self.documents |= {one.digest: unpacked(one) for one in told.documents}

    async def guarded(self, options: GuardOptions) -> Guarded:
        ask: Callable[[str], Awaitable[str]] = self.ask
        return await guarded(ask, "Report.", REPORT, options, self.emit)


@pytest.mark.anyio
async def test_seed_retry_budget_is_two_and_each_failure_is_an_event() -> None:
    agent = Agent("", '{"status": "completed", "count": -1}', GOOD_TEXT)
    found = await agent.guarded(GuardOptions())
    assert (found.value, found.attempts, found.reply) == (GOOD, 3, GOOD_TEXT)
    assert [(e["class"], e["attempt"], e["then"]) for e in agent.events] == [
        ("empty", 1, "retry"),
        ("invalid", 2, "retry"),
    ]
    assert all('"enum":["completed","failed"]' in prompt and prompt.startswith("Report.") for prompt in agent.prompts)
    assert "the reply is empty" in agent.prompts[1]
    assert "-1" in agent.prompts[2]
    assert "/count" in agent.prompts[2]


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["ask_human", "reject"])
async def test_seed_no_defined_end(end: str) -> None:
    agent = Agent("no", "no", "no")
    with pytest.raises(GuardrailFailed) as refused:
        await agent.guarded(GuardOptions(on_failure="ask_human" if end == "ask_human" else "reject"))
    assert (refused.value.code, refused.value.on_failure) == (LocalCode.GUARDRAIL_FAILED, end)
    assert refused.value.failed.kind is FailureKind.NO_JSON
    assert [event["then"] for event in agent.events] == ["retry", "retry", end]


@pytest.mark.anyio
async def test_no_retries_means_one_attempt() -> None:
    agent = Agent("no")
    with pytest.raises(GuardrailFailed, match="in 1 attempts"):
        await agent.guarded(GuardOptions(retries=0))
    assert len(agent.events) == 1


@pytest.mark.anyio
async def test_what_is_quoted_and_journalled_is_bounded_and_cannot_steer() -> None:
    agent = Agent('{"notes": ["\x1b]0;x\x07' + "n" * 200_000 + '"]}', "[" + "0," * 1000 + "0]", GOOD_TEXT)
    await agent.guarded(GuardOptions())
    assert len(agent.prompts[1]) < MAX_QUOTED_CHARS + 3000
    assert "\x1b" not in agent.prompts[1] + str(agent.events)
    for event in agent.events:
        assert isinstance(event["issues"], list)
        assert len(event["issues"]) <= MAX_ISSUES
        assert len(str(event)) < 10_000


@pytest.mark.anyio
async def test_a_schema_that_cannot_be_used_is_refused_before_anything_is_asked() -> None:
    agent = Agent()
    with pytest.raises(SubletError, match="refers beyond"):
        await guarded(agent.ask, "x", {"$ref": "http://127.0.0.1/s"}, GuardOptions(), agent.emit)
    assert agent.prompts == []


def test_more_than_two_retries_are_refused() -> None:
    for retries in (-1, 3):
        with pytest.raises(SubletError, match="between 0 and 2") as refused:
            GuardOptions(retries=retries)
        assert refused.value.code is LocalCode.INVALID_ARGUMENT


@pytest.mark.anyio
async def test_what_a_mask_keeps_back_is_journalled_nowhere_and_judged_the_same_again() -> None:
    replies = ['{"count": "many", "pin": "hunter2"}', 'pin: hunter2, [{"pin": "hunter2"}]', "hunter2"]
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"count": {"type": "integer"}}}
    schema["required"] = ["count"]
    agent = Agent(*replies)
    with pytest.raises(GuardrailFailed) as refused:
        await guarded(agent.ask, "Count.", schema, GuardOptions(mask=Mask(("/count",))), agent.emit)
    assert "hunter2" not in str(agent.events) + str(agent.documents) + refused.value.reply + str(refused.value)
    assert [event["class"] for event in agent.events] == ["invalid", "invalid", "no_json"]
    for event in agent.events[:2]:
        again = judge_again(CheckedSchema(schema), agent.documents[str(event["kept"])])
        assert isinstance(again, Failed)
        assert again.kind == event["class"]
    assert (agent.events[2]["kept"], agent.events[2]["notKept"]) == (None, NOTHING_WITHIN)


@pytest.mark.anyio
async def test_a_reply_is_kept_whole_and_its_check_is_the_same_again() -> None:
    agent = Agent("\x1b no \ud800", "x" * 70_000, GOOD_TEXT)
    found = await agent.guarded(GuardOptions())
    first, second = agent.events
    assert judge_again(CheckedSchema(REPORT), agent.documents[str(first["kept"])]) == Failed(
        FailureKind.NO_JSON, (Issue("", "the reply holds no JSON value"),)
    )
    assert (first["cut"], second["cut"], second["kept"], second["notKept"]) == (True, True, None, TOO_LONG)
    kept = {one.digest: unpacked(one) for one in found.evidence.documents}
    assert judge_again(CheckedSchema(REPORT), kept[str(found.evidence.data["kept"])]) == Passed(
        found.value, found.repairs
    )
    with pytest.raises(ValueError, match="can't be read"):
        judge_again(CheckedSchema(REPORT), {"other": 1})


@pytest.mark.anyio
async def test_an_answer_that_does_not_pass_is_told_and_asked_for_again_word_by_word() -> None:
    agent = Agent("", '{"status": "x", "count": -1, "notes": []}\x07', "no" * 3_000)
    schema: dict[str, JsonValue] = {**REPORT, "title": "\u00e9"}
    with pytest.raises(GuardrailFailed) as refused:
        await guarded(agent.ask, "Report.", schema, GuardOptions(), agent.emit)
    wanted = "Answer with exactly one JSON value that satisfies this JSON Schema, and nothing besides:\n" + json.dumps(
        schema, ensure_ascii=False, separators=(",", ":")
    )
    below, no_status = "-1 is less than the minimum of 0", "'x' is not one of ['completed', 'failed']"
    issues = [
        {"path": "/status", "message": no_status, "keyword": "enum"},
        {"path": "/count", "message": below, "keyword": "minimum"},
    ]
    cut = "(nothing)", '{"status": "x", "count": -1, "notes": []}'
    wrong = "- (the whole): the reply is empty", f"- /status: {no_status}\n- /count: {below}"
    again = [
        f"Report.\n\nYour previous answer could not be used:\n{why}\n\n"
        f"It was, quoted and possibly cut:\n<previous_answer>\n{quoted}\n</previous_answer>\n\n{wanted}"
        for why, quoted in zip(wrong, cut, strict=True)
    ]
    assert agent.prompts == [f"Report.\n\n{wanted}", *again]
    empty = [{"path": "", "message": "the reply is empty", "keyword": ""}]
    none = [{"path": "", "message": "the reply holds no JSON value", "keyword": ""}]
    told = [{k: v for k, v in event.items() if k not in ("schema", "mask", "kept")} for event in agent.events]
    asked = {"retries": 2, "onFailure": "reject"}
    last = f"{'no' * 480}… [5040 more characters cut]"
    events: list[dict[str, object]] = [
        {"class": "empty", "then": "retry", "candidates": 0, "issues": empty, "reply": "", "cut": False},
        {"class": "invalid", "then": "retry", "candidates": 1, "issues": issues, "reply": cut[1], "cut": True},
        {"class": "no_json", "then": "reject", "candidates": 0, "issues": none, "reply": last, "cut": True},
    ]
    assert told == [{**one, **asked, "attempt": number} for number, one in enumerate(events, 1)]
    assert refused.value.reply == f"{'no' * 1_980}… [2040 more characters cut]"
