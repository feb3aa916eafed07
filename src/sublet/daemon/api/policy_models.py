"""What is asked of policy and the audit log, and what they answer (SuperAgent 6.1, DESIGN 7)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from sublet.daemon.api.base import Request
from sublet.policy.model import Decision

Outcome = Literal["allow", "deny", "needs_grant"]
MAX_AUDIT_PAGE = 500


class ExplainRequest(Request):
    """A question, without any effect.

    ``subject`` is ``KIND`` or ``KIND:NAME``, or the name of an agent of this daemon; ``role`` is that agent's, by
    default as ``agent.json`` names it. ``args`` are a tool's arguments; ``granted`` asks what a grant would change.
    """

    subject: Annotated[str, Field(min_length=1, max_length=500)]
    action: Annotated[str, Field(min_length=1, max_length=100)]
    resource: Annotated[str, Field(min_length=1, max_length=4_096)]
    role: Annotated[str, Field(max_length=100)] = ""
    attributes: Annotated[dict[str, bool | int | str | list[str]], Field(max_length=64)] = Field(default_factory=dict)
    args: Annotated[dict[str, JsonValue], Field(max_length=256)] = Field(default_factory=dict)
    at: AwareDatetime | None = None
    granted: bool = False


class Explanation(BaseModel):
    """The answer, with the layer and rule that gave it, and what was asked in the form in which it was compared."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    decision: Outcome
    layer: str
    rule: str
    reason: str
    hint: str
    hidden: bool
    subject: str
    role: str
    action: str
    resource: str


class RuleView(BaseModel):
    """A rule as it holds. ``origin`` is where it comes from: built in, policy.json, or agent.json."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    id: str
    origin: Literal["built-in", "policy.json", "agent.json"]
    layer: str
    effect: Literal["allow", "approval", "deny"]
    kinds: list[str]
    name: str
    role: str
    actions: list[str]
    resource: str
    conditions: list[str]
    hide: bool
    reason: str


class PolicyView(BaseModel):
    """What holds now: all rules, and the limits that none exceeds; ``source`` is the file, with so many ``tests``."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    source: str
    rules: list[RuleView]
    limits: dict[str, JsonValue]
    tests: int


class AuditPage(BaseModel):
    """Entries of the audit log; ``cursor`` is where to go on."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    entries: list[dict[str, JsonValue]]
    cursor: int
    more: bool = Field(default=False, description="Whether entries are left that did not fit into the page")


class AuditVerdict(BaseModel):
    """Whether the chain is unbroken, and what it holds; ``signed`` is the last entry that a signature covers."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    ok: bool
    entries: int
    first: int
    last: int
    signed: int
    problem: str = ""


def explanation(decision: Decision, subject: str, role: str, action: str, resource: str) -> Explanation:
    """Return ``decision`` for people and scripts."""
    return Explanation(
        decision=decision.outcome,
        layer=decision.layer,
        rule=decision.rule,
        reason=decision.reason,
        hint=decision.hint,
        hidden=decision.hidden,
        subject=subject,
        role=role,
        action=action,
        resource=resource,
    )
