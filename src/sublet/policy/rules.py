"""One rule: whom it speaks of, what it allows or denies, and under which conditions."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from sublet.policy.model import Action, Kind, Resource, Subject
from sublet.policy.names import canonical

Effect = Literal["allow", "approval", "deny"]
"""``approval`` allows what a grant for exactly this call allows, and nothing without one."""
Layer = Literal["global", "role", "agent", "request"]
Scalar = str | int | bool

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

MAX_MATCHERS: Final = 16_384

_WILDCARDS = re.compile(r"[*?\[]")

ATTRIBUTES: Final[Mapping[Action, frozenset[str]]] = {
    Action.DELEGATION_CREATE: frozenset({"agent", "access_mode", "ttl_seconds"}),
    Action.DELEGATION_APPLY: frozenset({"to", "partial", "allow_mass_deletion"}),
    Action.DELEGATION_EXTEND: frozenset({"ttl_seconds"}),
    Action.AGENT_DISPATCH: frozenset({"declared", "depth"}),
    Action.WORKSPACE_LEND: frozenset({"path", "access_mode"}),
    Action.WORKSPACE_REVEAL: frozenset({"path"}),
    Action.WORKSPACE_UNLOCK: frozenset({"path"}),
    Action.ASSIGNMENT_ACCEPT: frozenset({"access_mode", "ttl_seconds"}),
    Action.LEND_ROOT_MANAGE: frozenset({"path"}),
}
"""Attributes that a resource has, by action; a condition on any other could never hold."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What an attribute must be: one of ``values``, like ``glob``, within ``minimum`` and ``maximum``, where given."""

    values: tuple[Scalar, ...] | None = None
    glob: str | None = None
    minimum: int | None = None
    maximum: int | None = None

    def holds(self, value: Scalar) -> bool:
        """Tell whether ``value`` satisfies every part that is given."""
        if self.values is not None and not any(_same(value, v) for v in self.values):
            return False
        if self.glob is not None and not (isinstance(value, str) and matcher(self.glob)(canonical(value))):
            return False
        if self.minimum is None and self.maximum is None:
            return True
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of one layer. Patterns are ``fnmatch`` globs over canonical names; ``*`` also matches a slash.

    ``when`` are conditions on attributes of the resource. Where the attribute is not given, an allow does not match,
    and a deny or an approval does: what is not known never widens. Of an attribute with several values, an allow wants
    all to satisfy the condition, a deny or an approval any.
    """

    id: str
    effect: Effect
    layer: Layer
    kinds: frozenset[Kind]
    actions: frozenset[Action]
    name: str = "*"
    resource: str = "*"
    when: Mapping[str, Condition] = field(default_factory=dict)
    reason: str = ""
    hint: str = ""

    def conditions_hold(self, resource: Resource) -> bool:
        """Tell whether the attributes are as the rule wants them."""
        for attribute, condition in self.when.items():
            value = resource.attributes.get(attribute)
            if value is None:
                if self.effect == "allow":
                    return False
            elif isinstance(value, tuple):
                satisfied = all if self.effect == "allow" else any
                if not satisfied(condition.holds(item) for item in value):
                    return False
            elif not condition.holds(value):
                return False
        return True


@functools.lru_cache(maxsize=MAX_MATCHERS)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return the test of a canonical name against ``pattern``.

    Absolute paths are compared with the pattern as it is written, all other names with its canonical form.
    """
    names = _matcher(canonical(pattern))
    if canonical(pattern) == pattern:
        return names
    paths = _matcher(pattern)
    return lambda name: paths(name) if name.startswith("/") else names(name)


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return the fastest test that does."""
    if pattern == "*":
        return lambda _name: True
    if is_literal(pattern):
        return pattern.__eq__
    if pattern.endswith("*") and is_literal(pattern[:-1]):
        prefix = pattern[:-1]
        return lambda name: name.startswith(prefix)
    expression = re.compile(fnmatch.translate(pattern))
    return lambda name: expression.match(name) is not None


def is_literal(pattern: str) -> bool:
    """Tell whether ``pattern`` has no wildcard."""
    return _WILDCARDS.search(pattern) is None


def subject_name(subject: Subject) -> str:
    """Return the subject's name as rules compare it."""
    return canonical(subject.name)


def _same(value: Scalar, wanted: Scalar) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return canonical(value) == canonical(wanted)
    return type(value) is type(wanted) and value == wanted
