"""All rules that hold together, as one document under one digest: what a decision was made by (DESIGN 7)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import tzinfo
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sublet.policy.attributes import ARGUMENT_PREFIX
from sublet.policy.decider import decide_by_rules
from sublet.policy.decision import Action, Decision, Kind, Resource, Subject
from sublet.policy.limits import Limits
from sublet.policy.rules import Rule
from sublet.policy.table import RuleTable
from sublet.policy.times import zone_name
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Document, document

_FORMAT: Final = 1


class RuleSet:
    """Rules in the order in which they count, and the limits that decisions look at.

    Args:
        rules: of all layers.
        limits: of them, ``access_modes`` decide.
        table: of the same rules, where there is one already.
    """

    def __init__(self, rules: Sequence[Rule], limits: Limits, table: RuleTable | None = None) -> None:
        self.rules = tuple(rules)
        self.limits = limits
        self.table = table or RuleTable(self.rules)
        self._arguments: dict[tuple[Action, Kind], frozenset[str]] = {}

    @functools.cached_property
    def document(self) -> Document | None:
        """The whole as a document; None where it is too large to be kept."""
        modes: list[JsonValue] = list(self.limits.access_modes)
        return document({"version": _FORMAT, "rules": [_shown(rule) for rule in self.rules], "accessModes": modes})

    def decide(
        self,
        subject: Subject,
        action: Action,
        resource: Resource,
        request: Sequence[Rule] = (),
        *,
        granted: bool = False,
        now: float,
    ) -> Decision:
        """Return what these rules say; arguments as of ``Policy.decide``, ``now`` in Unix seconds."""
        return decide_by_rules(self.table, self.limits, subject, action, resource, request, granted=granted, now=now)

    def compared_arguments(self, action: Action, kind: Kind) -> frozenset[str]:
        """Return which arguments of a call any rule looks at, as names of attributes."""
        found = self._arguments.get((action, kind))
        if found is None:
            meant = [rule for rule in self.rules if action in rule.actions and kind in rule.kinds]
            found = frozenset(name for rule in meant for name in rule.when if name.startswith(ARGUMENT_PREFIX))
            self._arguments[action, kind] = found
        return found


def rule_set_of(value: JsonValue) -> RuleSet:
    """Return the rules that a document holds. What a document of an older version does not say has its default.

    Raises:
        ValueError: it holds none, or such as this version does not know.
    """
    try:
        file = _File.model_validate(value)
    except ValidationError:
        raise ValueError("these are no rules that this version knows") from None
    return RuleSet(file.rules, Limits(access_modes=tuple(file.accessModes)))


class _File(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid")

    version: Literal[1]
    rules: list[Rule]
    accessModes: list[Literal["ro", "rw"]]


def _shown(value: object) -> JsonValue:
    """Return a rule, or a part of one, as JSON: fields under their names, sets in order."""
    if is_dataclass(value):
        return {one.name: _shown(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _shown(one) for name, one in value.items()}
    if isinstance(value, frozenset):
        return [_shown(one) for one in sorted(value)]
    if isinstance(value, tuple):
        return [_shown(one) for one in value]
    if isinstance(value, tzinfo):
        return zone_name(value)
    assert value is None or isinstance(value, str | int), f"{type(value).__name__} is no part of a rule"
    return value
