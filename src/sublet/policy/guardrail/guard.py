"""Asks until an answer satisfies its schema, a bounded number of times, and then ends as configured (SuperAgent 10)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio.to_thread

from sublet.policy.guardrail.check import Passed, check
from sublet.policy.guardrail.evidence import evidence
from sublet.policy.guardrail.failure import Failed, Issue
from sublet.policy.guardrail.options import MAX_QUOTED_CHARS, GuardOptions, GuardrailFailed
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Documented
from sublet.protocol.text import clean, clean_line

MAX_EVENT_REPLY_CHARS: Final = 1_000
WITHHELD: Final = "(not shown, since it may hold more than the mask of the answer lets through)"
"""In place of a reply, wherever it would be kept or shown."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """An answer that passed, the reply that it was taken from, and what was mended in it."""

    value: JsonValue
    reply: str
    repairs: tuple[str, ...]
    attempts: int
    evidence: Documented


async def guarded(
    ask: Callable[[str], Awaitable[str]],
    prompt: str,
    schema: Mapping[str, JsonValue],
    options: GuardOptions,
    emit: Callable[[Documented], Awaitable[None]],
) -> Guarded:
    """Ask for an answer that satisfies ``schema`` and return it.

    Args:
        ask: has an agent answer a prompt; what it raises ends the whole.
        prompt: what is wanted; how to answer is added.
        schema: JSON Schema, Draft 2020-12.
        options: retries, mask, and the end.
        emit: journals ``guardrail_failed``, once for each answer that does not pass, with what a replay needs.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a schema that can't be used, before anything is asked.
        GuardrailFailed: no answer has passed.
    """
    checked = await anyio.to_thread.run_sync(CheckedSchema, schema)
    text = first_prompt(prompt, checked)
    attempt = 0
    while True:
        attempt += 1
        reply = await ask(text)
        result = await anyio.to_thread.run_sync(check, reply, checked, options.mask)
        kept = await anyio.to_thread.run_sync(evidence, reply, checked, options.mask)
        if isinstance(result, Passed):
            return Guarded(result.value, reply, result.repairs, attempt, kept)
        final = attempt == options.retries + 1
        shown = clean(reply, MAX_EVENT_REPLY_CHARS) if options.mask is None else WITHHELD
        data = _event(result, shown, attempt, options.on_failure if final else "retry")
        asked: dict[str, JsonValue] = {"retries": options.retries, "onFailure": options.on_failure}
        await emit(Documented({**data, "cut": shown != reply, **asked, **kept.data}, kept.documents))
        if final:
            raise GuardrailFailed(result, reply if options.mask is None else WITHHELD, options.on_failure, attempt)
        text = retry_prompt(prompt, checked, result.issues, reply)


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


def _event(failed: Failed, shown: str, attempt: int, then: str) -> dict[str, JsonValue]:
    return {
        "class": str(failed.kind),
        "attempt": attempt,
        "then": then,
        "candidates": failed.candidates,
        "issues": [
            {"path": issue.path, "message": clean_line(issue.message), "keyword": issue.keyword}
            for issue in failed.issues
        ],
        "reply": shown,
    }
