"""The area of the control API around approvals, grants and the approver's key."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.approval_api import ApprovalApi
from sublet.daemon.api.approval_models import (
    ApproveRequest,
    ForgetApprover,
    IssueGrant,
    PassphraseApproval,
    SetApprover,
)
from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.base import Request as Arguments
from sublet.daemon.api.operation import Nothing
from sublet.daemon.operations.answers import Endpoint, answer, answers, who
from sublet.daemon.operations.reading import read_body, read_query


class ListApprovals(Arguments):
    """Which approvals to list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    pending: bool = True


class ListGrants(Arguments):
    """Which grants to list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    usable: bool = False


class ApprovalArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: ApprovalApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/approver", self._get_approver),
            ("POST", "/v1/approver", self._set_approver),
            ("POST", "/v1/approver/forget", self._forget_approver),
            ("GET", "/v1/approvals", self._list_approvals),
            ("GET", "/v1/approvals/{id}", self._get_approval),
            ("POST", "/v1/approvals/{id}/approve", self._approve),
            ("POST", "/v1/approvals/{id}/passphrase", self._approve_by_passphrase),
            ("POST", "/v1/approvals/{id}/deny", self._deny),
            ("GET", "/v1/grants", self._list_grants),
            ("POST", "/v1/grants", self._issue_grant),
            ("DELETE", "/v1/grants/{id}", self._revoke_grant),
        ]

    async def _get_approver(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.get_approver(who(request)))

    async def _set_approver(self, request: Request) -> Response:
        return answer(await self._api.set_approver(await read_body(request, SetApprover), who(request)))

    async def _forget_approver(self, request: Request) -> Response:
        return answer(await self._api.forget_approver(await read_body(request, ForgetApprover), who(request)))

    async def _list_approvals(self, request: Request) -> Response:
        query = read_query(request, ListApprovals)
        return answers(await self._api.list_approvals(who(request), limit=query.limit, pending=query.pending))

    async def _get_approval(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.get_approval(request.path_params["id"], who(request)))

    async def _approve(self, request: Request) -> Response:
        body = await read_body(request, ApproveRequest)
        return answer(await self._api.approve(request.path_params["id"], body, who(request)))

    async def _approve_by_passphrase(self, request: Request) -> Response:
        body = await read_body(request, PassphraseApproval)
        return answer(await self._api.approve_by_passphrase(request.path_params["id"], body, who(request)))

    async def _deny(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return answer(await self._api.deny_approval(request.path_params["id"], who(request)))

    async def _list_grants(self, request: Request) -> Response:
        query = read_query(request, ListGrants)
        return answers(await self._api.list_grants(who(request), limit=query.limit, usable=query.usable))

    async def _issue_grant(self, request: Request) -> Response:
        return answer(await self._api.issue_grant(await read_body(request, IssueGrant), who(request)), status=201)

    async def _revoke_grant(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.revoke_grant(request.path_params["id"], who(request)))
