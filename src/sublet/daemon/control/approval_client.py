"""Typed client of the area around approvals: ``ApprovalApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.approval_models import (
    ApprovalView,
    ApproveRequest,
    ApproverView,
    ForgetApprover,
    GrantView,
    IssueGrant,
    SetApprover,
)
from sublet.daemon.control.transport import Transport
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

_ID = Pattern(r"(apr|grt)_[0-9a-f]{1,32}\Z")


class ApprovalClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get_approver(self) -> ApproverView:
        """Return whose approval counts."""
        return await self._transport.fetch(ApproverView, "GET", "/v1/approver")

    async def set_approver(self, request: SetApprover) -> ApproverView:
        """Pin a key, or seal the pinned one anew."""
        return await self._transport.fetch(ApproverView, "POST", "/v1/approver", body=request)

    async def forget_approver(self, request: ForgetApprover) -> ApproverView:
        """Forget the key and void all grants."""
        return await self._transport.fetch(ApproverView, "POST", "/v1/approver/forget", body=request)

    async def list_approvals(self, *, limit: int = 100, pending: bool = True) -> list[ApprovalView]:
        """Return approvals, the newest first."""
        query = {"limit": limit, "pending": pending}
        return await self._transport.fetch_many(ApprovalView, "/v1/approvals", query)

    async def get_approval(self, approval_id: str) -> ApprovalView:
        """Return one approval with its complete arguments."""
        return await self._transport.fetch(ApprovalView, "GET", f"/v1/approvals/{_part(approval_id)}")

    async def approve(self, approval_id: str, request: ApproveRequest) -> ApprovalView:
        """Approve a call."""
        path = f"/v1/approvals/{_part(approval_id)}/approve"
        return await self._transport.fetch(ApprovalView, "POST", path, body=request)

    async def deny_approval(self, approval_id: str) -> ApprovalView:
        """Refuse a call."""
        return await self._transport.fetch(ApprovalView, "POST", f"/v1/approvals/{_part(approval_id)}/deny")

    async def list_grants(self, *, limit: int = 100, usable: bool = False) -> list[GrantView]:
        """Return grants, the newest first."""
        return await self._transport.fetch_many(GrantView, "/v1/grants", {"limit": limit, "usable": usable})

    async def issue_grant(self, request: IssueGrant) -> GrantView:
        """Issue a grant before anything is asked."""
        return await self._transport.fetch(GrantView, "POST", "/v1/grants", body=request)

    async def revoke_grant(self, grant_id: str) -> GrantView:
        """Take a grant back."""
        return await self._transport.fetch(GrantView, "DELETE", f"/v1/grants/{_part(grant_id)}")


def _part(given: str) -> str:
    """Return an id as a path segment.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what is no id.
    """
    if not _ID.match(given):
        what = f"{clean_line(given, 80)!r} is no id of an approval or a grant"
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, what, "See: sublet approvals list --all; sublet grants list --all"
        )
    return given
