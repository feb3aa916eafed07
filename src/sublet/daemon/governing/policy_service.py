"""Serves the operations on policy and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import anyio

from sublet.daemon.api.base import MAX_WAIT_SECONDS
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
)
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.governing.explain import asked_in, explained, shown
from sublet.daemon.governing.gatekeeper import Gatekeeper, looked_up
from sublet.daemon.operations.table import serves
from sublet.policy.decision import Action, Subject
from sublet.policy.engine import Policy
from sublet.protocol.errors import LocalCode, SubletError


class PolicyService:
    """Serves the operations of ``api.policy``.

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

    @serves(SHOW_POLICY)
    async def show_policy(self, request: Nothing, caller: Subject) -> PolicyView:
        return shown(self._policy)

    @serves(EXPLAIN)
    async def explain(self, request: ExplainRequest, caller: Subject) -> Explanation:
        roots = tuple(self._lend_roots())
        recorded = request.entry is not None
        if request.entry is not None:
            found = await self._audit_log.entries(request.entry - 1, limit=1)
            if not found or found[0].get("seq") != request.entry:
                raise SubletError(LocalCode.NOT_FOUND, f"the log has no entry {request.entry}", "See: sublet audit log")
            request, roots = asked_in(found[0], request.args)
        return await looked_up(explained, self._policy, request, self._role_of, roots, recorded)

    @serves(READ_AUDIT_LOG)
    async def read_audit_log(self, request: ReadAuditLog, caller: Subject) -> AuditPage:
        newest = self._audit_log.head.seq
        await self._gate.ask(caller, Action.AUDIT_READ, "*")
        limit = request.limit
        start = await self._audit_log.tail(limit) if request.cursor is None else request.cursor
        found = await self._audit_log.entries(start, limit=limit)
        with anyio.move_on_after(request.timeout):
            # That somebody reads the log is in it as well; who follows it waits for something else.
            while not any(entry.get("action") != Action.AUDIT_READ for entry in found) and len(found) < limit:
                seen = cast("int", found[-1]["seq"]) if found else start
                found += await self._audit_log.entries(seen, limit=limit - len(found), timeout=MAX_WAIT_SECONDS)
        last = cast("int", found[-1]["seq"]) if found else start
        return AuditPage(entries=found, cursor=last, more=bool(found) and len(found) < limit and last < newest)

    @serves(LIST_DENIALS)
    async def list_denials(self, request: ListDenials, caller: Subject) -> AuditPage:
        found, cursor = await self._audit_log.denials(request.before, limit=request.limit)
        return AuditPage(entries=found, cursor=cursor)

    @serves(VERIFY_AUDIT_LOG)
    async def verify_audit_log(self, request: Nothing, caller: Subject) -> AuditVerdict:
        verdict = await self._audit_log.verify()
        return AuditVerdict(
            ok=not verdict.problem,
            entries=verdict.entries,
            first=verdict.first,
            last=verdict.last,
            signed=verdict.signed,
            problem=verdict.problem,
        )
