"""What the daemon offers faces around approvals. Every method asks policy before it does anything."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.approval_models import (
    ApprovalView,
    ApproveRequest,
    ApproverView,
    ForgetApprover,
    GrantView,
    IssueGrant,
    PassphraseApproval,
    SetApprover,
)
from sublet.policy.model import Subject


class ApprovalApi(Protocol):
    """Approvals, grants and the approver's key."""

    async def get_approver(self, caller: Subject) -> ApproverView:
        """Return whose approval counts here."""

    async def set_approver(self, request: SetApprover, caller: Subject) -> ApproverView:
        """Pin a key, or seal the pinned one anew."""

    async def forget_approver(self, request: ForgetApprover, caller: Subject) -> ApproverView:
        """Forget the key and void all grants."""

    async def list_approvals(self, caller: Subject, *, limit: int = 100, pending: bool = True) -> list[ApprovalView]:
        """Return approvals, the newest first; with ``pending`` those that can still be decided, agents in turn."""

    async def get_approval(self, approval_id: str, caller: Subject) -> ApprovalView:
        """Return one approval with its complete arguments."""

    async def approve(self, approval_id: str, request: ApproveRequest, caller: Subject) -> ApprovalView:
        """Approve a call, as the approver has signed it."""

    async def approve_by_passphrase(
        self, approval_id: str, request: PassphraseApproval, caller: Subject
    ) -> ApprovalView:
        """Approve a call by the passphrase of the approver's key, which is used once and neither kept nor logged."""

    async def deny_approval(self, approval_id: str, caller: Subject) -> ApprovalView:
        """Refuse a call; that needs no key."""

    async def list_grants(self, caller: Subject, *, limit: int = 100, usable: bool = False) -> list[GrantView]:
        """Return grants, the newest first."""

    async def issue_grant(self, request: IssueGrant, caller: Subject) -> GrantView:
        """Issue a grant before anything is asked."""

    async def revoke_grant(self, grant_id: str, caller: Subject) -> GrantView:
        """Take a grant back; twice is no error."""
