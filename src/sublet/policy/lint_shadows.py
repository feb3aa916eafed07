"""Finds the rule with which another one can't make a difference any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sublet.policy.decision import Action, Kind
from sublet.policy.defaults import CEILING
from sublet.policy.globs import covers
from sublet.policy.names import skeleton
from sublet.policy.pattern_index import PatternIndex
from sublet.policy.rules import Rule
from sublet.policy.table import LAYERS, resource_pattern

Cells = frozenset[tuple[Action, Kind]]


def cells_of(rule: Rule) -> Cells:
    """Return for which actions and kinds the rule can make a difference at all."""
    return frozenset((action, kind) for action in rule.actions for kind in rule.kinds if action in CEILING[kind])


class Shadows:
    """The rules that hold always and for all that they name, which therefore can leave others without effect.

    Args:
        rules: place and rule, in the order in which they count.
    """

    def __init__(self, rules: Sequence[tuple[str, Rule]]) -> None:
        always = [(place, rule) for place, rule in rules if not rule.when and rule.times is None]
        self._wide = [(place, rule, cells_of(rule)) for place, rule in always]
        self._names = PatternIndex((skeleton(rule.name), i) for i, (_, rule) in enumerate(always))
        self._resources = PatternIndex((_loose(rule), i) for i, (_, rule) in enumerate(always))

    def of(self, rule: Rule, considered: Callable[[Rule], bool]) -> str:
        """Return the place of the rule with which nothing of ``rule`` is left, or nothing.

        For what denies or wants approval, only those before it count.
        """
        left = set(cells_of(rule))
        by_name, by_resource = self._names.find(skeleton(rule.name)), self._resources.find(_loose(rule))
        for i in sorted(by_name if len(by_name) < len(by_resource) else by_resource):
            place, other, cells = self._wide[i]
            if other is rule:
                if rule.effect != "allow" and considered(rule):
                    return ""
            elif considered(other) and _covers(other, rule, left & cells):
                left -= cells
                if not left:
                    return place
        return ""

    def replacing(self, rule: Rule) -> str:
        """Return the place of the allow of a higher layer that leaves nothing of the allow ``rule``, or nothing."""
        left = set(cells_of(rule))
        for i in sorted(self._names.find("*")):
            place, other, cells = self._wide[i]
            higher = LAYERS.index(other.layer) > LAYERS.index(rule.layer)
            if other.effect == "allow" and higher and other.name == other.role == "*":
                left -= cells
                if not left:
                    return place
        return ""


def _loose(rule: Rule) -> str:
    action = Action.TOOL_CALL if Action.TOOL_CALL in rule.actions else Action.DELEGATION_CREATE
    return resource_pattern(rule.resource, action, exact=False)


def _covers(other: Rule, rule: Rule, cells: set[tuple[Action, Kind]]) -> bool:
    """Tell whether ``other`` holds for every subject name, role and resource that ``rule`` could match."""
    if not (covers(skeleton(other.name), skeleton(rule.name)) and covers(skeleton(other.role), skeleton(rule.role))):
        return False
    return all(
        covers(
            resource_pattern(other.resource, action, exact=False), resource_pattern(rule.resource, action, exact=False)
        )
        for action in {action for action, _ in cells}
    )
