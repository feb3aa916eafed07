"""``PolicyApi``: one method per operation, and before each the question to policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import anyio

from sublet.daemon.api.models import MAX_WAIT_SECONDS
from sublet.daemon.api.policy_models import (
    MAX_AUDIT_PAGE,
    AuditPage,
    AuditVerdict,
    ExplainRequest,
    Explanation,
    PolicyView,
)
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.gatekeeper import Gatekeeper, looked_up
from sublet.daemon.governing.explain import explained, shown
from sublet.daemon.operations import operations
from sublet.policy.engine import Policy
from sublet.policy.model import Action, Subject


@operations
class PolicyService:
    """Implements ``PolicyApi``.

    Args:
        gate: asks policy.
        policy: whose rules are shown and explained.
        audit_log: the log of its decisions.
        role_of: tells the role of an agent of this daemon.
        lend_roots: directories that a person has allowed to lend.
    """

    def __init__(
        self,
        gate: Gatekeeper,
        policy: Policy,
        audit_log: AuditLog,
        role_of: Callable[[str], str],
        lend_roots: Callable[[], Sequence[str]],
    ) -> None:
        self._gate = gate
        self._policy = policy
        self._audit_log = audit_log
        self._role_of = role_of
        self._lend_roots = lend_roots

    async def show_policy(self, caller: Subject) -> PolicyView:
        """``PolicyApi.show_policy``."""
        await self._gate.ask(caller, Action.POLICY_READ, "*")
        return shown(self._policy)

    async def explain(self, request: ExplainRequest, caller: Subject) -> Explanation:
        """``PolicyApi.explain``."""
        await self._gate.ask(caller, Action.POLICY_READ, "*")
        return await looked_up(explained, self._policy, request, self._role_of, tuple(self._lend_roots()))

    async def audit_entries(
        self, caller: Subject, *, cursor: int | None = None, limit: int = 100, timeout: float = 0
    ) -> AuditPage:
        """``PolicyApi.audit_entries``."""
        newest = self._audit_log.head.seq
        await self._gate.ask(caller, Action.AUDIT_READ, "*")
        limit = min(limit, MAX_AUDIT_PAGE)
        start = await self._audit_log.tail(limit) if cursor is None else cursor
        found = await self._audit_log.entries(start, limit=limit)
        with anyio.move_on_after(min(timeout, MAX_WAIT_SECONDS)):
            # That somebody reads the log is in it as well; who follows it waits for something else.
            while not any(entry.get("action") != Action.AUDIT_READ for entry in found) and len(found) < limit:
                seen = cast("int", found[-1]["seq"]) if found else start
                found += await self._audit_log.entries(seen, limit=limit - len(found), timeout=MAX_WAIT_SECONDS)
        last = cast("int", found[-1]["seq"]) if found else start
        return AuditPage(entries=found, cursor=last, more=bool(found) and len(found) < limit and last < newest)

    async def list_denials(self, caller: Subject, *, before: int | None = None, limit: int = 100) -> AuditPage:
        """``PolicyApi.list_denials``."""
        await self._gate.ask(caller, Action.AUDIT_READ, "*")
        found, cursor = await self._audit_log.denials(before, limit=min(limit, MAX_AUDIT_PAGE))
        return AuditPage(entries=found, cursor=cursor)

    async def verify_audit(self, caller: Subject) -> AuditVerdict:
        """``PolicyApi.verify_audit``."""
        await self._gate.ask(caller, Action.AUDIT_READ, "*")
        verdict = await self._audit_log.verify()
        return AuditVerdict(
            ok=not verdict.problem,
            entries=verdict.entries,
            first=verdict.first,
            last=verdict.last,
            signed=verdict.signed,
            problem=verdict.problem,
        )
