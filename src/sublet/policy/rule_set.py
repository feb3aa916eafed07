"""All rules that hold together, as one document under one digest: what a decision was made by (DESIGN 7)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sublet.policy.attributes import ARGUMENT_PREFIX
from sublet.policy.decider import decide_by_rules
from sublet.policy.limits import Limits
from sublet.policy.model import Action, Decision, Kind, Resource, Subject
from sublet.policy.rules import Condition, Effect, Layer, Rule, Scalar
from sublet.policy.table import RuleTable
from sublet.policy.times import Times, zone_named
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Document, document

_FORMAT: Final = 1


class RuleSet:
    """Rules in the order in which they count, and the limits that decisions look at.

    Args:
        rules: of all layers.
        limits: of them, ``access_modes`` decide.
    """

    def __init__(self, rules: Sequence[Rule], limits: Limits) -> None:
        self.rules = tuple(rules)
        self.limits = limits
        self.table = RuleTable(self.rules)
        self._arguments: dict[tuple[Action, Kind], frozenset[str]] = {}

    @functools.cached_property
    def document(self) -> Document | None:
        """The whole as a document; None where it is too large to be kept."""
        modes: list[JsonValue] = list(self.limits.access_modes)
        return document({"version": _FORMAT, "rules": [_shown(rule) for rule in self.rules], "accessModes": modes})

    def decide(
        self, subject: Subject, action: Action, resource: Resource, *, granted: bool = False, now: float
    ) -> Decision:
        """Return what these rules say; arguments as of ``Policy.decide``, ``now`` in Unix seconds."""
        return decide_by_rules(self.table, self.limits, subject, action, resource, granted=granted, now=now)

    def compared_arguments(self, action: Action, kind: Kind) -> frozenset[str]:
        """Return which arguments of a call any rule looks at, as names of attributes."""
        found = self._arguments.get((action, kind))
        if found is None:
            meant = [rule for rule in self.rules if action in rule.actions and kind in rule.kinds]
            found = frozenset(name for rule in meant for name in rule.when if name.startswith(ARGUMENT_PREFIX))
            self._arguments[action, kind] = found
        return found


def rule_set_of(value: JsonValue) -> RuleSet:
    """Return the rules that a document holds.

    Raises:
        ValueError: it holds none, or such as this version does not know.
    """
    try:
        file = _File.model_validate(value)
    except ValidationError:
        raise ValueError("these are no rules that this version knows") from None
    return RuleSet([one.rule() for one in file.rules], Limits(access_modes=tuple(file.accessModes)))


class _Kept(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid", strict=False)


class _Condition(_Kept):
    values: list[Annotated[Scalar, Field(union_mode="smart")]] | None = None
    glob: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    scopes: list[str] | None = None

    def condition(self) -> Condition:
        values = None if self.values is None else tuple(self.values)
        return Condition(
            values, self.glob, self.minimum, self.maximum, None if self.scopes is None else tuple(self.scopes)
        )


class _Times(_Kept):
    start: int
    end: int
    days: list[int]
    zone: str


class _Rule(_Kept):
    id: str
    effect: Effect
    layer: Layer
    kinds: list[Kind]
    actions: list[Action]
    name: str
    resource: str
    role: str
    reason: str
    hint: str
    hide: bool
    when: dict[str, _Condition]
    times: _Times | None

    def rule(self) -> Rule:
        held = self.times
        return Rule(
            id=self.id,
            effect=self.effect,
            layer=self.layer,
            kinds=frozenset(self.kinds),
            actions=frozenset(self.actions),
            name=self.name,
            resource=self.resource,
            when={name: one.condition() for name, one in self.when.items()},
            reason=self.reason,
            hint=self.hint,
            role=self.role,
            times=None if held is None else Times(held.start, held.end, frozenset(held.days), zone_named(held.zone)),
            hide=self.hide,
        )


class _File(_Kept):
    version: Literal[1]
    rules: list[_Rule]
    accessModes: list[Literal["ro", "rw"]]


def _shown(rule: Rule) -> JsonValue:
    times: JsonValue = None
    if rule.times is not None:
        zone = rule.times.zone
        days: list[JsonValue] = [*sorted(rule.times.days)]
        name = zone.key if isinstance(zone, ZoneInfo) else "UTC"
        times = {"start": rule.times.start, "end": rule.times.end, "days": days, "zone": name}
    return {
        "id": rule.id,
        "effect": rule.effect,
        "layer": rule.layer,
        "kinds": [*sorted(rule.kinds)],
        "actions": [*sorted(rule.actions)],
        "name": rule.name,
        "resource": rule.resource,
        "role": rule.role,
        "reason": rule.reason,
        "hint": rule.hint,
        "hide": rule.hide,
        "when": _conditions(rule.when),
        "times": times,
    }


def _conditions(when: Mapping[str, Condition]) -> dict[str, JsonValue]:
    return {
        name: {
            "values": None if one.values is None else list(one.values),
            "glob": one.glob,
            "minimum": one.minimum,
            "maximum": one.maximum,
            "scopes": None if one.scopes is None else list(one.scopes),
        }
        for name, one in when.items()
    }
