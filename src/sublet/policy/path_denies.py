"""What an agent may not read or write at a path, as one thing that holds against programs as well (DESIGN 7).

A program asks nobody, so where a deny over paths is meant, the agent's sandbox shows no such file, or shows it
read-only. Weak in this: what such a rule names and is not there yet when a program starts can be made by that program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sublet.policy.decision import Action, Subject, Value
from sublet.policy.globs import matcher
from sublet.policy.names import skeleton
from sublet.policy.paths import PATH
from sublet.policy.rules import Condition, Rule
from sublet.policy.tool_names import tool_pattern

READS: Final = "file.read"
CHANGES: Final = ("file.write", "file.edit")


class PathDenies:
    """The denies over paths of one agent in one run.

    Args:
        unreadable: conditions on paths that may not be read.
        unwritable: conditions on paths that may not be written.
    """

    def __init__(self, unreadable: Iterable[Condition], unwritable: Iterable[Condition]) -> None:
        self._unreadable = tuple(unreadable)
        self._unwritable = tuple(unwritable)

    def __bool__(self) -> bool:
        return bool(self._unreadable or self._unwritable)

    def unreadable(self, path: str) -> bool:
        """Tell whether the agent may not read what is at ``path``, relative to the lent directory."""
        return any(one.holds(PATH, path, exact=False) for one in self._unreadable)

    def unwritable(self, path: str) -> bool:
        """Tell whether the agent may not write what is at ``path``."""
        return any(one.holds(PATH, path, exact=False) for one in self._unwritable)

    def below(self, directory: str) -> bool:
        """Tell whether anything in ``directory`` may be denied."""
        return any(one.may_hold_below(directory) for one in (*self._unreadable, *self._unwritable))


def path_denies(rules: Iterable[Rule], subject: Subject, known: Mapping[str, Value], now: float) -> PathDenies:
    """Return what ``rules`` deny ``subject`` by path.

    Args:
        rules: all that hold.
        subject: the agent.
        known: attributes of every call of the run, such as its delegation.
        now: Unix seconds.
    """
    meant = [rule for rule in rules if is_path_deny(rule) and _is_about(rule, subject) and _holds(rule, known, now)]
    return PathDenies(
        [rule.when[PATH] for rule in meant if speaks_of(rule, READS)],
        [rule.when[PATH] for rule in meant if any(speaks_of(rule, tool) for tool in CHANGES)],
    )


def is_path_deny(rule: Rule) -> bool:
    """Tell whether ``rule`` denies agents tools by the path that they touch."""
    return rule.effect == "deny" and Action.TOOL_CALL in rule.actions and "agent" in rule.kinds and PATH in rule.when


def speaks_of(rule: Rule, tool: str) -> bool:
    """Tell whether ``rule`` is about the tool of this canonical name."""
    return tool not in rule.spares and matcher(tool_pattern(rule.resource, exact=False))(tool)


def _is_about(rule: Rule, subject: Subject) -> bool:
    return matcher(skeleton(rule.name))(skeleton(subject.name)) and matcher(skeleton(rule.role))(skeleton(subject.role))


def _holds(rule: Rule, known: Mapping[str, Value], now: float) -> bool:
    """Tell whether all but the path is as the rule wants it; what only a call has is not known here."""
    if rule.times is not None and not rule.times.hold(now):
        return False
    for name, condition in rule.when.items():
        if name == PATH:
            continue
        value = known.get(name)
        if value is None or isinstance(value, tuple) or not condition.holds(name, value, exact=False):
            return False
    return True
