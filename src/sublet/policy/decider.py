"""What the rules say: four layers, read without looking at the disk or the clock (SuperAgent 6.1, DESIGN 7).

Rules: every deny stands, whichever layer it is of. Of the allows, those of the highest layer that has one count. A
grant does what an approval wants and takes no deny away. What nothing allows is denied.

Weak: rules see names and attributes as they are given; who asks has to resolve paths and aliases before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sublet.policy.decision import UNMATCHED, Action, Decision, Resource, Subject
from sublet.policy.defaults import CEILING
from sublet.policy.globs import components
from sublet.policy.limits import Limits
from sublet.policy.rules import Rule
from sublet.policy.table import LAYERS, Cell, Question, RuleTable, question
from sublet.policy.tool_names import READING_TOOLS, WRITING_TOOLS

GRANTABLE: Final = frozenset({Action.TOOL_CALL, Action.CAPABILITY_RUN, Action.OFFICE_CALL})
"""What a grant can allow: calls, which it is bound to, and nothing else."""

_GRANTED: Final = Decision(True, "request", "grant", "a grant allows exactly this call")


def decide_by_rules(
    table: RuleTable,
    limits: Limits,
    subject: Subject,
    action: Action,
    resource: Resource,
    request: Sequence[Rule] = (),
    *,
    granted: bool = False,
    now: float,
) -> Decision:
    """Return what rules and limits say; arguments as of ``Policy.decide``, ``now`` in Unix seconds."""
    if action not in CEILING[subject.kind]:
        return Decision(
            False, "global", "ceiling", f"{action} is not for callers of kind {subject.kind}, whatever the rules say"
        )
    granted = granted and action in GRANTABLE
    asked = question(subject, action, resource, now)
    decision = _by_rules(table.cell(action, subject.kind), asked, action, granted=granted)
    if request and (decision.allowed or decision.needs_grant):
        decision = _narrowed(decision, request, asked, action, granted=granted)
    if not decision.allowed and not decision.needs_grant:
        return decision
    return _limited(limits, asked, action) or decision


def _by_rules(cell: Cell, asked: Question, action: Action, *, granted: bool) -> Decision:
    for bucket in cell.denies:
        rule = bucket.find(asked)
        if rule is not None:
            return _decision(rule)
    approvals = [rule for _, bucket in cell.approvals if (rule := bucket.find(asked))]
    decision = _permitted(cell, approvals, asked, action)
    return _GRANTED if granted and not decision.allowed else decision


def _permitted(cell: Cell, approvals: Sequence[Rule], asked: Question, action: Action) -> Decision:
    """Return what the highest layer with an allow says, and the lowest approval beside it.

    An approval permits like an allow of its layer, unless a layer above it says by allows of its own what is allowed;
    whatever permits, each approval wants its grant.
    """
    for layer, bucket in cell.allows:
        if not bucket.speaks_for(asked):
            continue
        rule = bucket.find(asked)
        if rule is None and not any(LAYERS.index(a.layer) >= LAYERS.index(layer) for a in approvals):
            return Decision(
                False,
                layer,
                UNMATCHED,
                f"the {layer} layer says what this caller may do by {action}, and this is not in it",
                "A person can change it in policy.json.",
            )
        return _decision(approvals[0] if rule is None or approvals else rule)
    if approvals:
        return _decision(approvals[0])
    return Decision(
        False,
        "global",
        UNMATCHED,
        f"no rule allows {action} for callers of kind {asked.subject.kind}",
        "A person can do it, or allow it in policy.json.",
    )


def _narrowed(
    decision: Decision, request: Sequence[Rule], asked: Question, action: Action, *, granted: bool
) -> Decision:
    """Return ``decision`` as the request layer leaves it."""
    cell = RuleTable(request).cell(action, asked.subject.kind)
    own = _by_rules(cell, asked, action, granted=False)
    says_nothing = not cell.allows and own.rule == UNMATCHED
    if says_nothing or own.allowed:
        return decision
    return decision if own.needs_grant and granted else own


def _limited(limits: Limits, asked: Question, action: Action) -> Decision | None:
    """Return the refusal by a limit that no rule and no grant exceeds."""
    attributes = asked.resource.attributes
    mode = attributes.get("access_mode")
    if mode is not None and mode not in limits.access_modes:
        allowed = ", ".join(limits.access_modes)
        return Decision(False, "global", "limits.access_modes", f"access {mode} is not allowed", f"Ask for: {allowed}.")
    if action is not Action.TOOL_CALL:
        return None
    tool = asked.resource_name
    if mode == "ro" and tool in WRITING_TOOLS:
        return Decision(False, "global", "limits.read_only", f"the lease is read-only, and {tool} writes")
    given = attributes.get("path")
    if tool in WRITING_TOOLS or tool in READING_TOOLS:
        for path in given if isinstance(given, tuple) else [given]:
            if isinstance(path, str) and (path.startswith("/") or components(path) is None):
                return Decision(
                    False,
                    "global",
                    "limits.inside_lease",
                    "the path leads out of the lease, or it can't be told where it leads",
                    "Name a path inside the lease, without '..'.",
                )
    return None


def _decision(rule: Rule) -> Decision:
    said = {"allow": "allows it", "approval": "wants a person's approval", "deny": "denies it"}[rule.effect]
    return Decision(
        rule.effect == "allow",
        rule.layer,
        rule.id,
        rule.reason or f"rule {rule.id} {said}",
        rule.hint,
        needs_grant=rule.effect == "approval",
        hidden=rule.hide,
        record=rule.record,
    )
