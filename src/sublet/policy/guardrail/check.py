"""One reply against one schema: which of its values counts, mended how, or why none does. Without any I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sublet.policy.guardrail.extract import MAX_REPLY_CHARS, Candidate, ReplyPlace, candidates
from sublet.policy.guardrail.failure import MAX_ISSUES, Failed, FailureKind, Issue
from sublet.policy.guardrail.keywords import MAX_STEPS, Budget
from sublet.policy.guardrail.mask import Mask
from sublet.policy.guardrail.relaxed import TooManySteps
from sublet.policy.guardrail.repair import repaired
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue

MAX_CHECKED: Final = 16
"""Candidates of one reply that are held against the schema."""
WRITING_MENDED: Final = 1
VALUE_MENDED: Final = 2
"""How much was mended in a candidate; less counts first."""
MAX_REPLY_STEPS: Final = 2 * MAX_STEPS
"""Steps of all checks of one reply together; a candidate whose turn comes when none are left does not pass."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The value that counts, and what was mended in it."""

    value: JsonValue
    repairs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Examined:
    """The values of a reply that are held against the schema, and how many it holds."""

    candidates: tuple[Candidate, ...]
    count: int


@dataclass(frozen=True, slots=True)
class _Tried:
    """A candidate that was held against the schema: what it became, or what is wrong with it."""

    place: ReplyPlace
    changed: int
    value: JsonValue
    repairs: tuple[str, ...]
    issues: tuple[Issue, ...] = ()


def check(reply: str, schema: CheckedSchema, mask: Mask | None = None) -> Passed | Failed:
    """Return the one value of ``reply`` that satisfies ``schema``.

    Candidates are tried in order: the whole reply, blocks fenced as JSON, other fenced blocks, values between prose,
    and there from left to right. Of those that satisfy the schema, the ones that needed the least mending count (none;
    then of how it is written; then of what it says), and of these the ones in the best place. Where these differ from
    each other the reply is ambiguous, which is a failure: taking one of them would be a guess.
    """
    examined = examine(reply)
    return examined if isinstance(examined, Failed) else judge(examined, schema, mask)


def examine(reply: str) -> Examined | Failed:
    """Return the values of ``reply``, or why there is none."""
    if not reply.strip():
        return Failed(FailureKind.EMPTY, (Issue("", "the reply is empty"),))
    if len(reply) > MAX_REPLY_CHARS:
        too_long = f"the reply has {len(reply)} characters, and at most {MAX_REPLY_CHARS} are read"
        return Failed(FailureKind.TOO_LARGE, (Issue("", too_long),))
    try:
        found = candidates(reply)
    except TooManySteps:
        # What was found until then may be the wrong one.
        return Failed(FailureKind.TOO_LARGE, (Issue("", "it takes too many steps to find the JSON in the reply"),))
    if not found:
        return Failed(FailureKind.NO_JSON, (Issue("", "the reply holds no JSON value"),))
    return Examined(tuple(found[:MAX_CHECKED]), len(found))


def judge(found: Examined, schema: CheckedSchema, mask: Mask | None = None) -> Passed | Failed:
    """Return the one value that satisfies ``schema``: ``check``, once the values are found."""
    budget = Budget(MAX_REPLY_STEPS)
    tried = [_tried(candidate, schema, mask, budget) for candidate in found.candidates]
    passed = [one for one in tried if not one.issues]
    if not passed:
        best = min(tried, key=lambda one: len(one.issues))
        return Failed(FailureKind.INVALID, best.issues[:MAX_ISSUES], found.count)
    rank = min((one.changed, one.place) for one in passed)
    return _the_one([one for one in passed if (one.changed, one.place) == rank], found.count)


def _the_one(best: Sequence[_Tried], count: int) -> Passed | Failed:
    different = {json.dumps(one.value, sort_keys=True) for one in best}
    if len(different) > 1:
        words = f"the reply holds {len(different)} different values that all satisfy the schema; send exactly one"
        return Failed(FailureKind.AMBIGUOUS, (Issue("", words),), count)
    return Passed(best[0].value, best[0].repairs)


def _tried(candidate: Candidate, schema: CheckedSchema, mask: Mask | None, budget: Budget) -> _Tried:
    """Validate, mask, mend, and validate again (SuperAgent 10, steps 2 to 4)."""
    mends = tuple(sorted(candidate.mends))
    value = candidate.value
    issues = schema.issues(value, budget.part())
    if mask is not None:
        masked = mask.kept(value)
        if masked != value:
            value, issues = masked, schema.issues(masked, budget.part())
    if not issues:
        return _Tried(candidate.place, WRITING_MENDED if mends else 0, value, mends)
    mended, done = repaired(value, schema)
    left = schema.issues(mended, budget.part()) if done else issues
    return _Tried(candidate.place, VALUE_MENDED, mended, (*mends, *done), tuple(left))
