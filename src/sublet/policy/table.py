"""Rules as they are looked up: by action and kind of subject, then by layer, then by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from sublet.policy.model import Action, Kind, Resource
from sublet.policy.names import canonical
from sublet.policy.rules import Layer, Rule, is_literal, matcher

LAYERS: Final[tuple[Layer, ...]] = ("global", "role", "agent", "request")
"""From low to high."""


class _Compiled(NamedTuple):
    rule: Rule
    name: Callable[[str], bool]
    resource: Callable[[str], bool]


class _Bucket:
    """Rules of one effect, for one action, kind and layer; those that name one resource are found by it at once."""

    __slots__ = ("_by_resource", "_everyone", "_names", "_patterns")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._by_resource: dict[str, list[_Compiled]] = {}
        self._patterns: list[_Compiled] = []
        self._names: list[Callable[[str], bool]] = []
        self._everyone = False
        names: set[str] = set()
        for rule in rules:
            compiled = _Compiled(rule, matcher(rule.name), matcher(rule.resource))
            resource = canonical(rule.resource)
            if is_literal(resource):
                self._by_resource.setdefault(resource, []).append(compiled)
            else:
                self._patterns.append(compiled)
            self._everyone = self._everyone or rule.name == "*"
            names.add(canonical(rule.name))
        self._names = [matcher(name) for name in names]

    def speaks_for(self, name: str) -> bool:
        """Tell whether any rule is about this subject at all, whatever the resource."""
        return self._everyone or any(matches(name) for matches in self._names)

    def find(self, name: str, resource_name: str, resource: Resource) -> Rule | None:
        """Return a rule that matches, in the order of the rules where several name patterns do."""
        for compiled in self._candidates(resource_name):
            if compiled.name(name) and compiled.rule.conditions_hold(resource):
                return compiled.rule
        return None

    def _candidates(self, resource_name: str) -> Iterator[_Compiled]:
        yield from self._by_resource.get(resource_name, ())
        for compiled in self._patterns:
            if compiled.resource(resource_name):
                yield compiled


class Cell(NamedTuple):
    """All rules for one action and kind: denies and approvals from low to high layers, allows from high to low."""

    denies: tuple[_Bucket, ...]
    approvals: tuple[tuple[Layer, _Bucket], ...]
    allows: tuple[tuple[Layer, _Bucket], ...]


class RuleTable:
    """An immutable index of rules."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        sorted_out: dict[tuple[Action, Kind], list[Rule]] = {}
        for rule in rules:
            for action in rule.actions:
                for kind in rule.kinds:
                    sorted_out.setdefault((action, kind), []).append(rule)
        self._cells = {key: _cell(found) for key, found in sorted_out.items()}

    def cell(self, action: Action, kind: Kind) -> Cell:
        """Return the rules for ``action`` by subjects of ``kind``."""
        return self._cells.get((action, kind), _EMPTY)


_EMPTY: Final = Cell((), (), ())


def _cell(rules: list[Rule]) -> Cell:
    denies = [[r for r in rules if r.layer == layer and r.effect == "deny"] for layer in LAYERS]
    approvals = [(layer, [r for r in rules if r.layer == layer and r.effect == "approval"]) for layer in LAYERS]
    allows = [(layer, [r for r in rules if r.layer == layer and r.effect == "allow"]) for layer in reversed(LAYERS)]
    return Cell(
        tuple(_Bucket(found) for found in denies if found),
        tuple((layer, _Bucket(found)) for layer, found in approvals if found),
        tuple((layer, _Bucket(found)) for layer, found in allows if found),
    )
