"""``decide()``: the one place that says yes or no (DESIGN 2, 7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sublet.policy.config import PolicyConfig, load
from sublet.policy.defaults import CEILING, DEFAULT_RULES
from sublet.policy.lending import Protected, decide_lending
from sublet.policy.limits import Limits
from sublet.policy.model import Action, Decision, Resource, Subject
from sublet.policy.names import canonical
from sublet.policy.rules import Rule, subject_name
from sublet.policy.table import Cell, RuleTable


class Policy:
    """Rules in four layers, and the limits beside them.

    Layers, from low to high, are global, role (kind of subject), agent (one subject by name) and request. Every deny
    stands. The highest layer that has an allow for this action and subject replaces the allows below it. The request
    layer only narrows. What nothing allows is denied.

    Args:
        protected: directories that are never lent.
        config: rules and limits; the defaults where none is given.
    """

    def __init__(self, protected: Protected, config: PolicyConfig | None = None) -> None:
        self._protected = protected
        self._source: Path | None = None
        self._use(config or PolicyConfig())

    @classmethod
    def load(cls, source: Path, protected: Protected) -> Policy:
        """Return the policy that the file ``source`` holds; where there is none, the defaults.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` naming the place in the file.
        """
        policy = cls(protected, load(source))
        policy._source = source
        return policy

    @property
    def limits(self) -> Limits:
        """The limits that hold now."""
        return self._limits

    def reload(self) -> None:
        """Read the file again. A bad one changes nothing: what held before goes on to hold.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` naming the place in the file.
        """
        if self._source is not None:
            self._use(load(self._source))

    def decide(self, subject: Subject, action: Action, resource: Resource, request: Sequence[Rule] = ()) -> Decision:
        """Decide whether ``subject`` may do ``action`` to ``resource``.

        Args:
            subject: who asks, authenticated.
            action: what is asked for.
            resource: what it is done to; for ``WORKSPACE_LEND`` with the attribute ``path``.
            request: rules of the request layer: its denies stand, its allows narrow what the layers below allow.
        """
        if action not in CEILING[subject.kind]:
            return Decision(
                False,
                "global",
                "ceiling",
                f"{action} is not for callers of kind {subject.kind}, whatever the rules say",
            )
        decision = _by_rules(self._table.cell(action, subject.kind), subject, action, resource)
        if decision.allowed and request:
            decision = _narrowed(decision, request, subject, action, resource)
        if not decision.allowed:
            return decision
        mode = resource.attributes.get("access_mode")
        if mode is not None and mode not in self._limits.access_modes:
            allowed = ", ".join(self._limits.access_modes)
            return Decision(
                False, "global", "limits.access_modes", f"access {mode} is not allowed", f"Ask for: {allowed}."
            )
        if action is Action.WORKSPACE_LEND:
            lending = decide_lending(subject, str(resource.attributes.get("path", resource.name)), self._protected)
            return decision if lending.allowed else lending
        return decision

    def _use(self, config: PolicyConfig) -> None:
        table = RuleTable((*DEFAULT_RULES, *config.rules))
        self._table, self._limits = table, config.limits


def _by_rules(cell: Cell, subject: Subject, action: Action, resource: Resource) -> Decision:
    name, resource_name = subject_name(subject), canonical(resource.name)
    for bucket in cell.denies:
        rule = bucket.find(name, resource_name, resource)
        if rule is not None:
            return _decision(rule)
    for layer, bucket in cell.allows:
        if not bucket.speaks_for(name):
            continue
        rule = bucket.find(name, resource_name, resource)
        if rule is not None:
            return _decision(rule)
        return Decision(
            False,
            layer,
            "unmatched",
            f"the {layer} layer says what this caller may do by {action}, and this is not in it",
            "A person can change it in policy.json.",
        )
    return Decision(
        False,
        "global",
        "unmatched",
        f"no rule allows {action} for callers of kind {subject.kind}",
        "A person can do it, or allow it in policy.json.",
    )


def _narrowed(
    decision: Decision, request: Sequence[Rule], subject: Subject, action: Action, resource: Resource
) -> Decision:
    """Return ``decision`` as the request layer leaves it."""
    cell = RuleTable(request).cell(action, subject.kind)
    own = _by_rules(cell, subject, action, resource)
    silent = not cell.denies and not cell.allows
    only_denies = not cell.allows and own.rule == "unmatched"
    return decision if silent or only_denies or own.allowed else own


def _decision(rule: Rule) -> Decision:
    allowed = rule.effect == "allow"
    reason = rule.reason or f"rule {rule.id} {'allows' if allowed else 'denies'} it"
    return Decision(allowed, rule.layer, rule.id, reason, rule.hint)
