"""Finds rules that can never match or never matter, since whoever wrote them believes that they do (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sublet.policy.attributes import FIXED_RESOURCES, PATH_RESOURCES
from sublet.policy.decision import Action
from sublet.policy.defaults import DEFAULT_RULES
from sublet.policy.globs import defect, matcher
from sublet.policy.lint_conditions import lint_conditions
from sublet.policy.lint_shadows import Shadows, cells_of
from sublet.policy.names import plain, skeleton
from sublet.policy.rules import Rule
from sublet.policy.tool_names import tool_defect

RESERVED_IDS: Final = ("default.", "agent.json.", "limits.", "lending.")
RESERVED: Final = frozenset({"ceiling", "unmatched", "grant"})


def lint(rules: Mapping[str, Rule]) -> list[str]:
    """Return what is wrong with ``rules``, keyed by their place in the file; each problem begins with a place."""
    problems: list[str] = []
    seen: dict[str, str] = {}
    wide = Shadows([*((f"the built-in rule {r.id}", r) for r in DEFAULT_RULES), *rules.items()])
    for place, rule in rules.items():
        if rule.id in seen:
            problems.append(f"{place}.id: {rule.id!r} is the id of {seen[rule.id]} already")
        seen.setdefault(rule.id, place)
        if rule.id.startswith(RESERVED_IDS) or rule.id in RESERVED:
            problems.append(f"{place}.id: {rule.id!r} is an id that decisions without a rule of yours have")
        problems += [f"{place}.when.{name}: {why}" for name, why in lint_conditions(rule)]
        found = [*_patterns(rule), *_never(rule, wide)]
        problems += [f"{place}{where}: {why}" for where, why in found]
    return problems


def _patterns(rule: Rule) -> list[tuple[str, str]]:
    form = plain if rule.exact else skeleton
    problems = []
    for where, pattern in ((".subject.name", rule.name), (".subject.role", rule.role), (".resource", rule.resource)):
        why = defect(pattern) or ("" if skeleton(pattern) else "it consists of invisible characters only")
        if why:
            problems.append((where, f"never matches: {why}"))
    if problems:
        return problems
    if rule.kinds == {"human"} and not matcher(form(rule.name))(""):
        problems.append((".subject.name", "never matches: a person has no name here"))
    if not any(_possible(action, rule) for action in rule.actions):
        named = ", ".join(sorted(rule.actions))
        problems.append((".resource", f"never matches: no resource of {named} is named like {rule.resource!r}"))
    if rule.actions == {Action.TOOL_CALL} and (why := tool_defect(rule.resource)):
        problems.append((".resource", f"never matches: {why}"))
    return problems


def _possible(action: Action, rule: Rule) -> bool:
    if action in FIXED_RESOURCES:
        matches = matcher((plain if rule.exact else skeleton)(rule.resource))
        return any(matches(name) for name in FIXED_RESOURCES[action])
    if action in PATH_RESOURCES:
        return rule.resource.startswith(("/", "*", "?", "["))
    # Patterns of names to reveal or unlock may begin with a slash as well.
    return not rule.resource.startswith("/") or action in (Action.WORKSPACE_REVEAL, Action.WORKSPACE_UNLOCK)


def _never(rule: Rule, wide: Shadows) -> list[tuple[str, str]]:
    cells = cells_of(rule)
    if not cells:
        wanted = ", ".join(sorted(rule.actions))
        if rule.effect == "deny":
            return [("", f"never matters: whatever the rules say, nobody of whom it speaks may {wanted}")]
        return [("", f"never matches: no caller of its kind may ever be allowed {wanted}")]
    if found := wide.of(rule, lambda other: other.effect == "deny"):
        if rule.effect != "deny":
            return [("", f"never matches: {found} denies all of it")]
        return [("", f"unreachable: {found} denies all of it already")]
    if rule.effect == "allow" and (found := wide.replacing(rule)):
        return [("", f"never matches: {found} is of a higher layer and replaces it")]
    if found := wide.of(rule, lambda other: other.effect == rule.effect and other.layer == rule.layer):
        hint = "; to allow nothing else, put it in a higher layer" if "built-in" in found else ""
        return [("", f"unreachable: {found} of the same layer says all of it already{hint}")]
    return []
