"""Asks until an answer satisfies its schema, a bounded number of times, and then ends as configured (SuperAgent 10)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import anyio.to_thread

from sublet.policy.guardrail.check import Failed, Passed, check
from sublet.policy.guardrail.mask import Mask
from sublet.policy.guardrail.schema import CheckedSchema, Issue
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean, clean_line

MAX_RETRIES: Final = 2
MAX_QUOTED_CHARS: Final = 4_000
"""Of a reply that a retry prompt, or whoever is asked in the end, is shown."""
MAX_EVENT_REPLY_CHARS: Final = 1_000

OnFailure = Literal["ask_human", "reject"]


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """How answers are guarded.

    ``retries``: how often is asked again, 0 to ``MAX_RETRIES``. ``on_failure``: what becomes of a request whose answer
    still does not pass. ``mask``: fields that are kept; None keeps all.
    """

    retries: int = MAX_RETRIES
    on_failure: OnFailure = "reject"
    mask: Mask | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.retries <= MAX_RETRIES:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"between 0 and {MAX_RETRIES} retries are possible")


class GuardrailFailed(SubletError):
    """No answer has passed: what was wrong with the last one, and whether a person is to be asked."""

    def __init__(self, failed: Failed, reply: str, on_failure: OnFailure, attempts: int) -> None:
        issues = "; ".join(issue.line() for issue in failed.issues[:3])
        super().__init__(
            LocalCode.GUARDRAIL_FAILED,
            f"no answer satisfied the schema in {attempts} attempts ({failed.kind}): {issues}",
            "Ask again with a simpler schema, or let a person decide."
            if on_failure == "reject"
            else "A person has to decide what becomes of it.",
        )
        self.failed = failed
        self.reply = clean(reply, MAX_QUOTED_CHARS)
        self.on_failure = on_failure


@dataclass(frozen=True, slots=True)
class Guarded:
    """An answer that passed, the reply that it was taken from, and what was mended in it."""

    value: JsonValue
    reply: str
    repairs: tuple[str, ...]
    attempts: int


async def guarded(
    ask: Callable[[str], Awaitable[str]],
    prompt: str,
    schema: Mapping[str, JsonValue],
    options: GuardOptions,
    emit: Callable[[Mapping[str, JsonValue]], Awaitable[None]],
) -> Guarded:
    """Ask for an answer that satisfies ``schema`` and return it.

    Args:
        ask: has an agent answer a prompt; what it raises ends the whole.
        prompt: what is wanted; how to answer is added.
        schema: JSON Schema, Draft 2020-12.
        options: retries, mask, and the end.
        emit: journals ``guardrail_failed`` with this data, once for each answer that does not pass.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a schema that can't be used, before anything is asked.
        GuardrailFailed: no answer has passed.
    """
    checked = await anyio.to_thread.run_sync(CheckedSchema, schema)
    text = first_prompt(prompt, checked)
    for attempt in range(1, options.retries + 2):
        reply = await ask(text)
        result = await anyio.to_thread.run_sync(check, reply, checked, options.mask)
        if isinstance(result, Passed):
            return Guarded(result.value, reply, result.repairs, attempt)
        final = attempt == options.retries + 1
        await emit(_event(result, reply, attempt, options.on_failure if final else "retry"))
        if final:
            raise GuardrailFailed(result, reply, options.on_failure, attempt)
        text = retry_prompt(prompt, checked, result.issues, reply)
    raise AssertionError("the last attempt returns or raises")


def first_prompt(prompt: str, schema: CheckedSchema) -> str:
    """Return ``prompt`` with what the answer has to look like."""
    return f"{prompt}\n\n{_wanted(schema)}"


def retry_prompt(prompt: str, schema: CheckedSchema, issues: Sequence[Issue], reply: str) -> str:
    """Return ``prompt`` anew with what was wrong with the last reply, and a bounded part of that reply."""
    wrong = "\n".join(f"- {issue.line()}" for issue in issues)
    quoted = clean(reply, MAX_QUOTED_CHARS) or "(nothing)"
    return (
        f"{prompt}\n\nYour previous answer could not be used:\n{wrong}\n\n"
        f"It was, quoted and possibly cut:\n<previous_answer>\n{quoted}\n</previous_answer>\n\n{_wanted(schema)}"
    )


def _wanted(schema: CheckedSchema) -> str:
    document = json.dumps(schema.document, ensure_ascii=False, separators=(",", ":"))
    return f"Answer with exactly one JSON value that satisfies this JSON Schema, and nothing besides:\n{document}"


def _event(failed: Failed, reply: str, attempt: int, then: str) -> dict[str, JsonValue]:
    return {
        "class": str(failed.kind),
        "attempt": attempt,
        "then": then,
        "candidates": failed.candidates,
        "issues": [
            {"path": issue.path, "message": clean_line(issue.message), "keyword": issue.keyword}
            for issue in failed.issues
        ],
        "reply": clean(reply, MAX_EVENT_REPLY_CHARS),
    }
