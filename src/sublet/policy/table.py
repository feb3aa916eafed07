"""Rules as they are looked up: by action and kind of subject, then by layer, then by the name of the resource."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from sublet.policy.decision import Action, Kind, Resource, Subject
from sublet.policy.globs import components, matcher
from sublet.policy.names import MAX_FORMS, MAX_REMEMBERED_CHARS, plain, skeleton
from sublet.policy.pattern_index import PatternIndex
from sublet.policy.rules import Layer, Rule
from sublet.policy.tool_names import tool_exacts, tool_pattern, tool_skeletons

LAYERS: Final[tuple[Layer, ...]] = ("global", "role", "agent", "request")
"""From low to high."""


class Question(NamedTuple):
    """Who asks for what, in the forms in which rules compare names: exactly for allows, loosely for all others."""

    subject: Subject
    resource: Resource
    now: float
    name: str
    name_loose: str
    role: str
    role_loose: str
    resource_name: str
    resource_exact: tuple[str, ...]
    resource_loose: tuple[str, ...]


def question(subject: Subject, action: Action, resource: Resource, now: float) -> Question:
    """Return the question in canonical names."""
    known = _subject_forms if len(subject.name) <= MAX_REMEMBERED_CHARS else _subject_forms.__wrapped__
    name, name_loose, role, role_loose = known(subject.name, subject.role)
    forms = _resource_forms if len(resource.name) <= MAX_REMEMBERED_CHARS else _resource_forms.__wrapped__
    exact, loose = forms(resource.name, action is Action.TOOL_CALL)
    return Question(subject, resource, now, name, name_loose, role, role_loose, exact[0], exact, loose)


@functools.lru_cache(maxsize=MAX_FORMS)
def _subject_forms(name: str, role: str) -> tuple[str, str, str, str]:
    return plain(name), skeleton(name), plain(role), skeleton(role)


@functools.lru_cache(maxsize=MAX_FORMS)
def _resource_forms(name: str, is_tool: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (tool_exacts(name), tool_skeletons(name)) if is_tool else ((plain(name),), (skeleton(name),))


def resource_pattern(pattern: str, action: Action, *, exact: bool) -> str:
    """Return a rule's pattern in the form in which resources of ``action`` are compared."""
    if action is Action.TOOL_CALL:
        return tool_pattern(pattern, exact=exact)
    return plain(pattern) if exact else skeleton(pattern)


class _Compiled(NamedTuple):
    order: int
    rule: Rule
    name: Callable[[str], bool]
    role: Callable[[str], bool]


class _Bucket:
    """Rules of one effect, for one action, kind and layer."""

    __slots__ = ("_exact", "_index", "_names", "_paths")

    def __init__(self, rules: Sequence[Rule], action: Action) -> None:
        self._exact = rules[0].exact
        form = plain if self._exact else skeleton
        compiled = [
            _Compiled(order, rule, matcher(form(rule.name)), matcher(form(rule.role)))
            for order, rule in enumerate(rules)
        ]
        self._index = PatternIndex((resource_pattern(c.rule.resource, action, exact=self._exact), c) for c in compiled)
        # To the file system, two spellings are two files, so paths are compared with patterns as they are written.
        self._paths = (
            self._index if action is Action.TOOL_CALL else PatternIndex((c.rule.resource, c) for c in compiled)
        )
        roles: dict[str, set[str]] = {}
        for rule in rules:
            roles.setdefault(form(rule.name), set()).add(form(rule.role))
        self._names = PatternIndex((name, [matcher(role) for role in found]) for name, found in roles.items())

    def speaks_for(self, asked: Question) -> bool:
        """Tell whether any rule is about this subject at all, whatever the resource."""
        name, role = (asked.name, asked.role) if self._exact else (asked.name_loose, asked.role_loose)
        return any(matches(role) for found in self._names.find(name) for matches in found)

    def find(self, asked: Question) -> Rule | None:
        """Return the first rule that matches."""
        if self._exact:
            index = self._paths if asked.resource_name.startswith("/") else self._index
            forms = asked.resource_exact
            found = index.find(forms[0]) if len(forms) == 1 else [one for form in forms for one in index.find(form)]
            name, role = asked.name, asked.role
        else:
            found, name, role = self._loosely(asked), asked.name_loose, asked.role_loose
        best: _Compiled | None = None
        for compiled in found:
            if (
                (best is None or compiled.order < best.order)
                and compiled.name(name)
                and compiled.role(role)
                and compiled.rule.conditions_hold(asked.resource, asked.now)
            ):
                best = compiled
        return best.rule if best is not None else None

    def _loosely(self, asked: Question) -> list[_Compiled]:
        forms = asked.resource_loose
        if len(forms) == 1:
            if not forms[0].startswith("/"):
                return self._index.find(forms[0])
            if components(forms[0]) is None:
                return list(self._paths.values())  # where such a path leads can't be told, so each deny stands
            return self._paths.find(forms[0])
        return [compiled for form in forms for compiled in self._index.find(form)]


class Cell(NamedTuple):
    """All rules for one action and kind: denies and approvals from low to high layers, allows from high to low."""

    denies: tuple[_Bucket, ...]
    approvals: tuple[tuple[Layer, _Bucket], ...]
    allows: tuple[tuple[Layer, _Bucket], ...]


class RuleTable:
    """An immutable index of rules.

    Args:
        rules: in the order in which they count.
        over: a table whose rules come before them. What it has for an action and a kind is taken as it is where
            ``rules`` add nothing, so that the many rules that are always there are sorted once.
    """

    def __init__(self, rules: Iterable[Rule], over: RuleTable | None = None) -> None:
        added: dict[tuple[Action, Kind], list[Rule]] = {}
        for rule in rules:
            for action in rule.actions:
                for kind in rule.kinds:
                    added.setdefault((action, kind), []).append(rule)
        self._rules: dict[tuple[Action, Kind], list[Rule]] = dict(over._rules) if over is not None else {}
        self._cells: dict[tuple[Action, Kind], Cell] = dict(over._cells) if over is not None else {}
        for key, found in added.items():
            self._rules[key] = [*self._rules.get(key, ()), *found]
            self._cells[key] = _cell(self._rules[key], key[0])

    def cell(self, action: Action, kind: Kind) -> Cell:
        """Return the rules for ``action`` by subjects of ``kind``."""
        return self._cells.get((action, kind), _EMPTY)


_EMPTY: Final = Cell((), (), ())


def _cell(rules: list[Rule], action: Action) -> Cell:
    denies = [[r for r in rules if r.layer == layer and r.effect == "deny"] for layer in LAYERS]
    approvals = [(layer, [r for r in rules if r.layer == layer and r.effect == "approval"]) for layer in LAYERS]
    allows = [(layer, [r for r in rules if r.layer == layer and r.effect == "allow"]) for layer in reversed(LAYERS)]
    return Cell(
        tuple(_Bucket(found, action) for found in denies if found),
        tuple((layer, _Bucket(found, action)) for layer, found in approvals if found),
        tuple((layer, _Bucket(found, action)) for layer, found in allows if found),
    )
