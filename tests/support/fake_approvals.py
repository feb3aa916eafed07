"""An ``ApprovalControl`` for tests of the command line, which answers what the test has laid out."""

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


class FakeApprovals:
    """Nothing waits, nothing is granted, and there is no approver, unless the test says so."""

    def __init__(self) -> None:
        self.approver = ApproverView(
            daemon="node-x", public_key=None, fingerprint=None, made_at=None, reset_at=None, sealed=None
        )
        self.approvals: list[ApprovalView] = []
        self.grants: list[GrantView] = []

    async def get_approver(self) -> ApproverView:
        return self.approver

    async def set_approver(self, request: SetApprover) -> ApproverView:
        raise NotImplementedError

    async def forget_approver(self, request: ForgetApprover) -> ApproverView:
        raise NotImplementedError

    async def list_approvals(self, *, limit: int = 100, pending: bool = True) -> list[ApprovalView]:
        return self.approvals[:limit]

    async def get_approval(self, approval_id: str) -> ApprovalView:
        return next(one for one in self.approvals if one.id == approval_id)

    async def approve(self, approval_id: str, request: ApproveRequest) -> ApprovalView:
        raise NotImplementedError

    async def deny_approval(self, approval_id: str) -> ApprovalView:
        raise NotImplementedError

    async def list_grants(self, *, limit: int = 100, usable: bool = False) -> list[GrantView]:
        return self.grants[:limit]

    async def issue_grant(self, request: IssueGrant) -> GrantView:
        raise NotImplementedError

    async def revoke_grant(self, grant_id: str) -> GrantView:
        raise NotImplementedError
