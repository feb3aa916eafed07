"""Policy's area of the control API: rules, explanations, and the audit log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.base import Request as Arguments
from sublet.daemon.api.models import MAX_WAIT_SECONDS
from sublet.daemon.api.policy_api import PolicyApi
from sublet.daemon.api.policy_models import MAX_AUDIT_PAGE, ExplainRequest
from sublet.daemon.control.answers import Endpoint, answer, who
from sublet.daemon.control.requests import Nothing, read_body, read_query


class AuditEntries(Arguments):
    """Which entries to return."""

    cursor: Annotated[int, Field(ge=0)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_AUDIT_PAGE)] = 100
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0


class Denials(Arguments):
    """Which denials to return."""

    before: Annotated[int, Field(ge=1)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_AUDIT_PAGE)] = 100


class PolicyArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: PolicyApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/policy", self._show),
            ("POST", "/v1/policy/explain", self._explain),
            ("GET", "/v1/audit-log", self._entries),
            ("GET", "/v1/audit-log/denials", self._denials),
            ("GET", "/v1/audit-log/verify", self._verify),
        ]

    async def _show(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.show_policy(who(request)))

    async def _explain(self, request: Request) -> Response:
        return answer(await self._api.explain(await read_body(request, ExplainRequest), who(request)))

    async def _entries(self, request: Request) -> Response:
        query = read_query(request, AuditEntries)
        page = await self._api.audit_entries(
            who(request), cursor=query.cursor, limit=query.limit, timeout=query.timeout
        )
        return answer(page)

    async def _denials(self, request: Request) -> Response:
        query = read_query(request, Denials)
        return answer(await self._api.list_denials(who(request), before=query.before, limit=query.limit))

    async def _verify(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.verify_audit(who(request)))
