"""The tests that a policy file carries: questions with the answers that its rules have to give (``policy test``)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sublet.policy.attributes import ATTRIBUTES, UNNAMED, WITH_ARGUMENTS, attribute_of
from sublet.policy.decider import decide_by_rules
from sublet.policy.decision import UNMATCHED, Action, Decision, Resource, Subject, Value
from sublet.policy.limits import Limits
from sublet.policy.paths import PATH, settled, touched_by, written
from sublet.policy.sizes import size_written
from sublet.policy.table import RuleTable
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line


@dataclass(frozen=True, slots=True)
class RuleTest:
    """One test: ``expected`` is the outcome, ``rule`` the id of the rule that has to give it, where that matters.

    ``at`` is the time in Unix seconds, or None for now.
    """

    place: str
    subject: Subject
    action: Action
    resource: str
    attributes: Mapping[str, Value]
    arguments: Mapping[str, JsonValue]
    expected: str
    rule: str | None
    at: float | None


@dataclass(frozen=True, slots=True)
class TestResult:
    """What came of a test; ``problem`` is empty where it passed."""

    __test__ = False

    test: RuleTest
    decision: Decision
    problem: str

    @property
    def passed(self) -> bool:
        """Whether the answer was the expected one."""
        return not self.problem


def run_tests(tests: Sequence[RuleTest], table: RuleTable, limits: Limits) -> list[TestResult]:
    """Return the results, in order. Links are followed, as a gate does; what may be lent at all is not for rules."""
    results = []
    for test in tests:
        try:
            asked = asked_resource(test.action, test.resource, test.attributes, test.arguments)
        except SubletError as error:
            results.append(TestResult(test, _NOT_ASKED, error.message))
            continue
        now = time.time() if test.at is None else test.at
        decision = decide_by_rules(table, limits, test.subject, test.action, asked, now=now)
        results.append(TestResult(test, decision, _problem(test, decision)))
    return results


def asked_resource(
    action: Action,
    name: str,
    attributes: Mapping[str, Value],
    arguments: Mapping[str, JsonValue],
    *,
    recorded: bool = False,
) -> Resource:
    """Return the resource of a question that a person has written, as a gate would ask for it. Looks at the disk.

    ``recorded`` is a question that a gate has asked: what it does not name was not known.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for an attribute or arguments that the action does not have.
    """
    for given in attributes:
        if given not in UNNAMED and attribute_of(action, given) is None:
            known = sorted(ATTRIBUTES.get(action, {}))
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{action} has no attribute {clean_line(given, 80)!r}",
                f"It has: {', '.join(known)}." if known else "It has none.",
            )
    if not recorded:
        attributes = {name: _checked(action, name, value) for name, value in attributes.items()}
    called = action in WITH_ARGUMENTS
    if arguments and not called:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{action} has no arguments", "Give attributes instead.")
    if called:
        named = arguments and action is Action.TOOL_CALL and PATH not in attributes and not recorded
        paths = touched_by(name, arguments) if named else ()
        attributes = {**tool_resource(name, arguments, paths).attributes, **attributes}
    return settled(action, written(action, name, attributes))


def _checked(action: Action, name: str, value: Value) -> Value:
    """Return the value of an attribute as a gate would give it: a size that is written with its unit is a number.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for one that no resource has.
    """
    attribute = attribute_of(action, name)
    if attribute is None:
        return value
    if attribute.type == "number" and isinstance(value, str):
        size = size_written(value)
        value = value if size is None else size
    if why := attribute.defect_of(value):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"the attribute {name} of {action} is never {clean_line(str(value), 80)!r}: {why}",
            "Write a size as a number, or as 10 MiB." if attribute.type == "number" else "Ask for what there can be.",
        )
    return value


_NOT_ASKED: Final = Decision(False, "global", UNMATCHED, "it can't be asked")


def _problem(test: RuleTest, decision: Decision) -> str:
    said = f"{decision.outcome} by {decision.layer} rule {decision.rule}"
    if decision.outcome != test.expected:
        return f"expected {test.expected}, and it is {said}"
    if test.rule is not None and decision.rule != test.rule:
        return f"expected rule {test.rule} to decide, and it is {said}"
    return ""
