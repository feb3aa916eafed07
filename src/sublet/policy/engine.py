"""``decide()``: the one place that says yes or no (DESIGN 2, 7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sublet.policy.config import PolicyConfig, load
from sublet.policy.defaults import CEILING, DEFAULT_RULES
from sublet.policy.lending import Protected, decide_lending
from sublet.policy.limits import Limits
from sublet.policy.model import Action, Decision, Resource, Subject
from sublet.policy.names import canonical
from sublet.policy.rules import Rule, subject_name
from sublet.policy.table import LAYERS, Cell, RuleTable


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

    def decide(
        self,
        subject: Subject,
        action: Action,
        resource: Resource,
        request: Sequence[Rule] = (),
        *,
        granted: bool = False,
    ) -> Decision:
        """Decide whether ``subject`` may do ``action`` to ``resource``.

        Args:
            subject: who asks, authenticated.
            action: what is asked for.
            resource: what it is done to; for ``WORKSPACE_LEND`` with the attribute ``path``.
            request: rules of the request layer: its denies stand, its allows narrow what the layers below allow.
            granted: whether a person's grant for exactly this call is at hand. It does what an approval wants, and
                allows what no rule speaks of; no deny and no limit gives way to it.
        """
        if action not in CEILING[subject.kind]:
            return Decision(
                False,
                "global",
                "ceiling",
                f"{action} is not for callers of kind {subject.kind}, whatever the rules say",
            )
        decision = _by_rules(self._table.cell(action, subject.kind), subject, action, resource, granted=granted)
        if request and (decision.allowed or decision.needs_grant):
            decision = _narrowed(decision, request, subject, action, resource, granted=granted)
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


_GRANTED: Final = Decision(True, "request", "grant", "a grant allows exactly this call")


def _by_rules(cell: Cell, subject: Subject, action: Action, resource: Resource, *, granted: bool) -> Decision:
    name, resource_name = subject_name(subject), canonical(resource.name)
    for bucket in cell.denies:
        rule = bucket.find(name, resource_name, resource)
        if rule is not None:
            return _decision(rule)
    approvals = [rule for _, bucket in cell.approvals if (rule := bucket.find(name, resource_name, resource))]
    decision = _permitted(cell, approvals, subject, action, resource)
    if granted and (decision.needs_grant or not decision.allowed):
        return _GRANTED
    return decision


def _permitted(cell: Cell, approvals: Sequence[Rule], subject: Subject, action: Action, resource: Resource) -> Decision:
    """Return what the highest layer with an allow says, and the lowest approval beside it.

    An approval permits like an allow of its layer, unless a layer above it says by allows of its own what is allowed;
    whatever permits, each approval wants its grant.
    """
    name, resource_name = subject_name(subject), canonical(resource.name)
    for layer, bucket in cell.allows:
        if not bucket.speaks_for(name):
            continue
        rule = bucket.find(name, resource_name, resource)
        if rule is None and not any(LAYERS.index(a.layer) >= LAYERS.index(layer) for a in approvals):
            return Decision(
                False,
                layer,
                "unmatched",
                f"the {layer} layer says what this caller may do by {action}, and this is not in it",
                "A person can change it in policy.json.",
            )
        if approvals:
            return _decision(approvals[0])
        assert rule is not None
        return _decision(rule)
    if approvals:
        return _decision(approvals[0])
    return Decision(
        False,
        "global",
        "unmatched",
        f"no rule allows {action} for callers of kind {subject.kind}",
        "A person can do it, or allow it in policy.json.",
    )


def _narrowed(
    decision: Decision,
    request: Sequence[Rule],
    subject: Subject,
    action: Action,
    resource: Resource,
    *,
    granted: bool,
) -> Decision:
    """Return ``decision`` as the request layer leaves it."""
    cell = RuleTable(request).cell(action, subject.kind)
    own = _by_rules(cell, subject, action, resource, granted=False)
    silent = not cell.denies and not cell.approvals and not cell.allows
    only_denies = not cell.allows and own.rule == "unmatched"
    if silent or only_denies or own.allowed:
        return decision
    return decision if own.needs_grant and granted else own


def _decision(rule: Rule) -> Decision:
    said = {"allow": "allows it", "approval": "wants a person's approval", "deny": "denies it"}[rule.effect]
    return Decision(
        rule.effect == "allow",
        rule.layer,
        rule.id,
        rule.reason or f"rule {rule.id} {said}",
        rule.hint,
        needs_grant=rule.effect == "approval",
    )
