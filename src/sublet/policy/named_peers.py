"""Finds what the rules say of one peer by its name, so that nobody takes such a name without being given it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sublet.policy.decision import Action
from sublet.policy.globs import matcher
from sublet.policy.names import skeleton
from sublet.policy.rules import Condition, Rule

_PEER_RESOURCES = frozenset({Action.DELEGATION_CREATE, Action.PEER_MANAGE, Action.PEER_PAIR})
"""Actions whose resource is a peer."""


class NamedPeers:
    """The names of peers that rules speak of, compared as loosely as a deny compares them.

    A rule that speaks of all peers names none. A pattern such as ``work-*`` names each peer that it matches.

    Args:
        rules: all rules that hold.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._named = [(rule.id, named) for rule in rules for named in _patterns(rule)]

    def rule_about(self, name: str) -> str | None:
        """Return the id of the first rule that names the peer ``name``, or None."""
        form = skeleton(name)
        return next((rule for rule, named in self._named if named(form)), None)


def _patterns(rule: Rule) -> Iterator[Callable[[str], bool]]:
    if "peer" in rule.kinds:
        yield from _one(rule.name)
    if rule.actions & _PEER_RESOURCES:
        yield from _one(rule.resource)
    if (condition := rule.when.get("peer")) is not None:
        yield from conditions(condition)


def conditions(condition: Condition) -> Iterator[Callable[[str], bool]]:
    """Yield a test for each name, and for the pattern, that a condition on the attribute ``peer`` gives."""
    for value in condition.values or ():
        yield skeleton(str(value)).__eq__
    if condition.glob is not None:
        yield from _one(condition.glob)


def _one(pattern: str) -> Iterator[Callable[[str], bool]]:
    if pattern.strip("*"):
        yield matcher(skeleton(pattern))
