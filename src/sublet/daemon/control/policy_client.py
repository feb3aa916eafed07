"""Typed client of policy's area: ``PolicyApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.policy_models import AuditPage, AuditVerdict, ExplainRequest, Explanation, PolicyView
from sublet.daemon.control.transport import Transport


class PolicyClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def show_policy(self) -> PolicyView:
        """Return every rule and limit that holds now."""
        return await self._transport.fetch(PolicyView, "GET", "/v1/policy")

    async def explain(self, request: ExplainRequest) -> Explanation:
        """Answer a question as policy would."""
        return await self._transport.fetch(Explanation, "POST", "/v1/policy/explain", body=request)

    async def audit_entries(self, *, cursor: int | None = None, limit: int = 100, timeout: float = 0) -> AuditPage:
        """Return entries of the audit log after ``cursor``, or the newest."""
        query = {"cursor": cursor, "limit": limit, "timeout": timeout}
        return await self._transport.fetch(AuditPage, "GET", "/v1/audit-log", query)

    async def list_denials(self, *, before: int | None = None, limit: int = 100) -> AuditPage:
        """Return what was denied, the newest first."""
        query = {"before": before, "limit": limit}
        return await self._transport.fetch(AuditPage, "GET", "/v1/audit-log/denials", query)

    async def verify_audit(self) -> AuditVerdict:
        """Check the whole chain."""
        return await self._transport.fetch(AuditVerdict, "GET", "/v1/audit-log/verify")
