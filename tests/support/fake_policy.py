"""Policy and audit log for the command line's tests, which play back what they are given."""

from __future__ import annotations

from dataclasses import dataclass, field

from sublet.daemon.api.policy_models import AuditPage, AuditVerdict, ExplainRequest, Explanation, PolicyView, RuleView
from sublet.daemon.control.policy_client import PolicyClient
from sublet.protocol.canonical import JsonValue


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
        "reason": "reviewers only read",
    }
    return RuleView.model_validate({**base, **more})


@dataclass
class FakePolicy(PolicyClient):
    """Keeps what it was asked."""

    view: PolicyView = field(
        default_factory=lambda: PolicyView(source="/c/policy.json", rules=[a_rule()], limits={"slots": 5}, tests=2)
    )
    entries: list[dict[str, JsonValue]] = field(default_factory=list)
    verdict: AuditVerdict = field(default_factory=lambda: AuditVerdict(ok=True, entries=7, first=1, last=7, signed=6))
    asked: list[ExplainRequest] = field(default_factory=list)

    async def show_policy(self) -> PolicyView:
        return self.view

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

    async def audit_entries(self, *, cursor: int | None = None, limit: int = 100, timeout: float = 0) -> AuditPage:
        found = [entry for entry in self.entries if cursor is None or int(str(entry["seq"])) > cursor][:limit]
        return AuditPage(entries=found, cursor=int(str(found[-1]["seq"])) if found else cursor or 0)

    async def list_denials(self, *, before: int | None = None, limit: int = 100) -> AuditPage:
        denied = [one for one in self.entries if one.get("decision") in ("deny", "needs_grant")]
        return AuditPage(entries=denied[::-1][:limit], cursor=0 if len(denied) <= limit else 7)

    async def verify_audit(self) -> AuditVerdict:
        return self.verdict
