"""Finds conditions that can never hold: of attributes that are not there, of the wrong type, or out of range."""

from __future__ import annotations

from typing import Final

from sublet.policy.attributes import PATH_RESOURCES, Attribute, attribute_of
from sublet.policy.commands import COMMAND_LINES, command_defect, words
from sublet.policy.globs import defect, matcher
from sublet.policy.names import plain, skeleton
from sublet.policy.path_conditions import path_faults
from sublet.policy.paths import PATH
from sublet.policy.rules import Condition, Rule

_OF_GLOBS: Final = frozenset("*?[")


def lint_conditions(rule: Rule) -> list[tuple[str, str]]:
    """Return the attribute and the defect of each condition of ``rule`` that can't hold, or says nothing."""
    problems = []
    for name, condition in rule.when.items():
        known = [found for action in sorted(rule.actions) if (found := attribute_of(action, name)) is not None]
        if not known:
            problems.append((name, f"no action of the rule has this attribute, so it {_consequence(rule)}"))
        elif condition == Condition():
            problems.append((name, "says nothing; give any_of, like, within, min or max"))
        elif condition.minimum is not None and condition.maximum is not None and condition.minimum > condition.maximum:
            problems.append((name, "min is greater than max, so the rule never matches"))
        elif name == PATH and not _wrong_type(condition, known[0]):
            having = [action for action in rule.actions if attribute_of(action, name) is not None]
            problems += [(name, why) for why in path_faults(condition, having)]
        else:
            reasons = [_impossible(condition, attribute) for attribute in known]
            if all(reasons):
                problems.append((name, f"never holds: {reasons[0]}"))
            elif not any(attribute.type != "name" for attribute in known):
                problems += [(name, why) for why in _no_names(condition)]
        problems += [(name, why) for why in _at_odds(name, condition)]
        if rule.exact and name in COMMAND_LINES:
            problems += [(name, f"never matches: {why}") for why in _no_command(condition)]
    return problems or _another_path(rule)


def _consequence(rule: Rule) -> str:
    return "never matches" if rule.effect == "allow" else "always holds and means nothing"


def _impossible(condition: Condition, attribute: Attribute) -> str:
    """Return why no value of the attribute satisfies the condition, or nothing."""
    return (
        _wrong_type(condition, attribute)
        or _out_of_range(condition, attribute)
        or _no_choice(condition, attribute)
        or (defect(condition.glob) if condition.glob is not None else "")
    )


def _wrong_type(condition: Condition, attribute: Attribute) -> str:
    kind = attribute.type
    if kind == "any":
        return "within is for the attribute path, as arguments are what the agent writes" if condition.scopes else ""
    if kind != "number" and (condition.minimum is not None or condition.maximum is not None):
        return "min and max are for numbers, and this is none"
    if kind in ("number", "flag") and condition.glob is not None:
        return "like is for text, and this is none"
    if kind != "path" and condition.scopes is not None:
        return "within is for paths, and this is none"
    wanted = {"number": int, "flag": bool}.get(kind, str)
    if condition.values is not None and not any(type(value) is wanted for value in condition.values):
        return f"it is a {'text' if wanted is str else kind}, and none of the values is one"
    return ""


def _out_of_range(condition: Condition, attribute: Attribute) -> str:
    if attribute.type != "number":
        return ""
    low, high = attribute.minimum, attribute.maximum
    spelled = f"it is at least {low}" + (f" and at most {high}" if high is not None else "")
    if condition.maximum is not None and condition.maximum < low:
        return spelled
    if high is not None and condition.minimum is not None and condition.minimum > high:
        return spelled
    if condition.values is None:
        return ""
    possible = [
        value
        for value in condition.values
        if type(value) is int
        and value >= low
        and (high is None or value <= high)
        and (condition.minimum is None or value >= condition.minimum)
        and (condition.maximum is None or value <= condition.maximum)
    ]
    return "" if possible else spelled if condition.minimum is None else "no value is within min and max"


def _no_choice(condition: Condition, attribute: Attribute) -> str:
    if attribute.type != "choice":
        return ""
    spelled = f"it is one of {', '.join(sorted(attribute.choices))}"
    if condition.values is not None:
        wanted = {skeleton(value) for value in condition.values if isinstance(value, str)}
        if not wanted & attribute.spelled:
            return spelled
    if condition.glob is not None and not any(map(matcher(plain(condition.glob)), attribute.choices)):
        return spelled
    return ""


def _another_path(rule: Rule) -> list[tuple[str, str]]:
    """Return that a rule names one path as its resource, and wants another one by a condition."""
    condition = rule.when.get(PATH)
    named = rule.actions <= PATH_RESOURCES and not set(rule.resource) & _OF_GLOBS
    if condition is None or not named or condition.holds(PATH, rule.resource, exact=rule.exact):
        return []
    return [(PATH, f"never holds: the path is the rule's resource, {rule.resource}")]


def _no_names(condition: Condition) -> list[str]:
    texts = [value for value in condition.values or () if isinstance(value, str)]
    return [f"{text!r} never matches: {why}" for text in texts if (why := defect(text))]


def _at_odds(name: str, condition: Condition) -> list[str]:
    """Return that no value that the condition names is as its other parts want it."""
    if condition.values is None or condition == Condition(values=condition.values):
        return []
    if any(condition.holds(name, value, exact=False) for value in condition.values):
        return []
    return ["never holds: none of the values is as the rest of the condition wants it"]


def _no_command(condition: Condition) -> list[str]:
    found = [command_defect(condition.glob)] if condition.glob is not None else []
    lines = [value for value in condition.values or () if isinstance(value, str)]
    found += [
        "" if words(line) else f"{line!r} is not one simple command, so write a rule for its tool" for line in lines
    ]
    return [why for why in found if why]
