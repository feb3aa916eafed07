"""Operations on policy and the audit log: rules, explanations, decisions (SuperAgent 6.1, DESIGN 7)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, model_validator

from sublet.daemon.api.base import MAX_WAIT_SECONDS, Request
from sublet.daemon.api.operation import Asks, AsksInside, Nothing, Operation
from sublet.policy.decision import Action, Decision
from sublet.protocol.idle_fields import refuse_idle
from sublet.protocol.lease_terms import MAX_TOOL_NAMES, ToolName

Outcome = Literal["allow", "deny", "needs_grant"]
MAX_AUDIT_PAGE = 500


_OF_A_QUESTION = ("role", "attributes", "at", "granted", "deny", "only")


class ExplainRequest(Request):
    """A question, without any effect.

    ``subject`` is ``KIND`` or ``KIND:NAME``, or the name of an agent of this daemon; ``role`` is that agent's, by
    default as ``agent.json`` names it. ``args`` are a tool's arguments; ``granted`` asks what a grant would change.
    ``deny`` and ``only`` are what the request itself narrows. ``entry`` is the number of a decision in the audit log,
    which is asked again by the rules of now.
    """

    subject: Annotated[str, Field(max_length=500)] = ""
    action: Annotated[str, Field(max_length=100)] = ""
    resource: Annotated[str, Field(max_length=4_096)] = ""
    entry: Annotated[int, Field(ge=1)] | None = None
    role: Annotated[str, Field(max_length=100)] = ""
    attributes: Annotated[dict[str, bool | int | str | list[str]], Field(max_length=64)] = Field(default_factory=dict)
    args: Annotated[dict[str, JsonValue], Field(max_length=256)] = Field(default_factory=dict)
    at: AwareDatetime | None = None
    granted: bool = False
    deny: Annotated[list[ToolName], Field(max_length=MAX_TOOL_NAMES)] = Field(default_factory=list)
    only: Annotated[list[ToolName], Field(max_length=MAX_TOOL_NAMES)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _asks(self) -> ExplainRequest:
        named = (self.subject, self.action, self.resource)
        if self.entry is None and not all(named):
            raise ValueError("give subject, action and resource, or the number of an entry of the audit log")
        if self.entry is not None and any(named):
            raise ValueError("an entry of the audit log names its subject, action and resource")
        if self.entry is not None:
            refuse_idle(self, "can't go with entry, which has its own", *_OF_A_QUESTION)
        return self


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
    record: bool
    reason: str
    hint: str


class PolicyView(BaseModel):
    """What holds now: all rules, and the limits that none exceeds; ``source`` is the file, with so many ``tests``."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    source: str
    rules: list[RuleView]
    limits: dict[str, JsonValue]
    tests: int


class ReadAuditLog(Request):
    """Which entries to return: those after ``cursor``, or the newest. ``timeout`` is how long to wait for the first."""

    cursor: Annotated[int, Field(ge=0)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_AUDIT_PAGE)] = 100
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0


class ListDenials(Request):
    """Which denials to return: those before the cursor of an earlier page, or the newest."""

    before: Annotated[int, Field(ge=1)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_AUDIT_PAGE)] = 100


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


SHOW_POLICY = Operation(
    "policy.show",
    "GET",
    "/v1/policy",
    Nothing,
    PolicyView,
    asks=Asks(Action.POLICY_READ),
    summary="Return every rule and limit that holds now.",
)
EXPLAIN = Operation(
    "policy.explain",
    "POST",
    "/v1/policy/explain",
    ExplainRequest,
    Explanation,
    asks=Asks(Action.POLICY_READ),
    summary="Answer a question as policy would, and name the rule that decided it. Nothing is done or recorded.",
)
READ_AUDIT_LOG = Operation(
    "audit.read",
    "GET",
    "/v1/audit-log",
    ReadAuditLog,
    AuditPage,
    asks=AsksInside("the question is an entry as well, and the page ends before it", (Action.AUDIT_READ,)),
    summary="Return entries of the audit log, waiting for the first one as long as the request says.",
)
LIST_DENIALS = Operation(
    "audit.denials",
    "GET",
    "/v1/audit-log/denials",
    ListDenials,
    AuditPage,
    asks=Asks(Action.AUDIT_READ),
    summary="Return what policy has denied or left to a person, the newest first. A cursor of 0 is the end.",
)
VERIFY_AUDIT_LOG = Operation(
    "audit.verify",
    "GET",
    "/v1/audit-log/verify",
    Nothing,
    AuditVerdict,
    asks=Asks(Action.AUDIT_READ),
    summary="Check the whole chain of the audit log.",
)


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
