"""Policy and audit log for the command line's tests, which play back what they are given."""

from __future__ import annotations

from dataclasses import dataclass, field

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.policy import (
    EXPLAIN,
    LIST_DENIALS,
    READ_AUDIT_LOG,
    SHOW_POLICY,
    VERIFY_AUDIT_LOG,
    AuditPage,
    AuditVerdict,
    ExplainRequest,
    Explanation,
    ListDenials,
    PolicyView,
    ReadAuditLog,
    RuleView,
)
from sublet.protocol.canonical import JsonValue
from support.answering import answers


def a_rule(**more: object) -> RuleView:
    """Return a rule."""
    base = {
        "id": "no-shell",
        "origin": "policy.json",
        "layer": "role",
        "effect": "deny",
        "kinds": ["agent"],
        "name": "*",
        "role": "reviewer",
        "actions": ["tool.call"],
        "resource": "shell.exec",
        "conditions": ["args.command like rm *"],
        "hide": False,
        "record": False,
        "reason": "reviewers only read",
        "hint": "",
    }
    return RuleView.model_validate({**base, **more})


@dataclass
class FakePolicy:
    """Keeps what it was asked."""

    view: PolicyView = field(
        default_factory=lambda: PolicyView(source="/c/policy.json", rules=[a_rule()], limits={"slots": 5}, tests=2)
    )
    entries: list[dict[str, JsonValue]] = field(default_factory=list)
    verdict: AuditVerdict = field(default_factory=lambda: AuditVerdict(ok=True, entries=7, first=1, last=7, signed=6))
    asked: list[ExplainRequest] = field(default_factory=list)

    @answers(SHOW_POLICY)
    async def show_policy(self, request: Nothing) -> PolicyView:
        return self.view

    @answers(EXPLAIN)
    async def explain(self, request: ExplainRequest) -> Explanation:
        self.asked.append(request)
        return Explanation(
            decision="deny",
            layer="role",
            rule="no-shell",
            reason="reviewers only read",
            hint="Ask a person.",
            hidden=False,
            subject="agent:worker",
            role="reviewer",
            action=request.action,
            resource=request.resource,
        )

    @answers(READ_AUDIT_LOG)
    async def read_audit_log(self, request: ReadAuditLog) -> AuditPage:
        cursor, limit = request.cursor, request.limit
        found = [entry for entry in self.entries if cursor is None or int(str(entry["seq"])) > cursor][:limit]
        return AuditPage(entries=found, cursor=int(str(found[-1]["seq"])) if found else cursor or 0)

    @answers(LIST_DENIALS)
    async def list_denials(self, request: ListDenials) -> AuditPage:
        limit = request.limit
        denied = [one for one in self.entries if one.get("decision") in ("deny", "needs_grant")]
        return AuditPage(entries=denied[::-1][:limit], cursor=0 if len(denied) <= limit else 7)

    @answers(VERIFY_AUDIT_LOG)
    async def verify_audit_log(self, request: Nothing) -> AuditVerdict:
        return self.verdict
