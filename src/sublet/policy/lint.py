"""Finds rules that can never match, since whoever wrote them believes that they do (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Mapping

from sublet.policy.attributes import attribute_of
from sublet.policy.defaults import CEILING
from sublet.policy.names import skeleton as canonical
from sublet.policy.rules import Condition, Rule

_HIGHER = {"global": ("role", "agent"), "role": ("agent",), "agent": (), "request": ()}


def lint(rules: Mapping[str, Rule]) -> list[str]:
    """Return what is wrong with ``rules``, keyed by their place in the file; each problem begins with a place."""
    problems: list[str] = []
    seen: dict[str, str] = {}
    for place, rule in rules.items():
        if rule.id in seen:
            problems.append(f"{place}.id: {rule.id!r} is the id of {seen[rule.id]} already")
        seen.setdefault(rule.id, place)
        if rule.id.startswith("default."):
            problems.append(f"{place}.id: ids beginning with default. are those of the built-in rules")
        problems += [f"{place}.when.{name}: {why}" for name, why in _conditions(rule)]
        if not canonical(rule.name) or not canonical(rule.resource):
            problems.append(f"{place}: a pattern of invisible characters only never matches")
        if rule.effect == "allow":
            problems += [f"{place}: {why}" for why in _never_allows(rule, rules)]
    return problems


def _conditions(rule: Rule) -> list[tuple[str, str]]:
    problems = []
    for name, condition in rule.when.items():
        known = {action for action in rule.actions if attribute_of(action, name)}
        if not known:
            problems.append((name, f"no action of the rule has this attribute, so it {_consequence(rule)}"))
        if condition == Condition():
            problems.append((name, "says nothing; give any_of, like, min or max"))
        if condition.minimum is not None and condition.maximum is not None and condition.minimum > condition.maximum:
            problems.append((name, "min is greater than max, so the rule never matches"))
    return problems


def _consequence(rule: Rule) -> str:
    return "never matches" if rule.effect == "allow" else "always holds and means nothing"


def _never_allows(rule: Rule, rules: Mapping[str, Rule]) -> list[str]:
    if not rule.kinds:
        wanted = ", ".join(sorted(rule.actions))
        return [f"never matches: no caller of its kind may ever be allowed {wanted}"]
    cells = {(action, kind) for action in rule.actions for kind in rule.kinds if action in CEILING[kind]}
    for place, other in rules.items():
        if other.effect == "deny" and _covers(other, rule):
            cells -= {(a, k) for a in other.actions for k in other.kinds}
            if not cells:
                return [f"never matches: {place} denies all of it"]
    for place, other in rules.items():
        if other.effect == "allow" and other.layer in _HIGHER[rule.layer] and other.name == "*":
            cells -= {(a, k) for a in other.actions for k in other.kinds}
            if not cells:
                return [f"never matches: {place} is of a higher layer and replaces it"]
    return []


def _covers(deny: Rule, allow: Rule) -> bool:
    """Tell whether ``deny`` holds for every subject name, resource and attribute that ``allow`` could match."""
    names = deny.name == "*" or canonical(deny.name) == canonical(allow.name)
    resources = deny.resource == "*" or canonical(deny.resource) == canonical(allow.resource)
    return names and resources and not deny.when
