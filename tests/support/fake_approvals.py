"""Approvals for the command line's tests: one that waits, one grant, and nobody who approves."""

from __future__ import annotations

from sublet.daemon.api.approvals import (
    DENY_APPROVAL,
    GET_APPROVAL,
    GET_APPROVER,
    LIST_APPROVALS,
    LIST_GRANTS,
    REVOKE_GRANT,
    ApprovalView,
    ApproverView,
    DenyApproval,
    GrantView,
    ListApprovals,
    ListGrants,
    OneApproval,
    OneGrant,
)
from sublet.daemon.api.operation import Nothing
from support.answering import answers

AT = "2026-11-27T10:00:00.000Z"
WAITING = ApprovalView(
    id="apr_0123456789abcdef",
    state="pending",
    agent="coder",
    tool="shell.exec",
    digest="0" * 64,
    shown='shell.exec {"command":"make deploy"}',
    truncated=False,
    arguments='{"command":"make deploy"}',
    scope="ses_1",
    waits=True,
    created_at=AT,
    expires_at=AT,
    remaining_seconds=300,
    decided_at=None,
    decided_by=None,
    context={"reason": "a person decides", "rule": "ask-first", "role": "executor"},
)
WIDE = GrantView(
    id="grt_0123456789abcdef01234567",
    state="usable",
    agent="coder",
    tool="shell.exec",
    digest=None,
    widened=True,
    when={"args.command": "make *"},
    scope="",
    issued_by="human",
    issued_at=AT,
    expires_at=AT,
    remaining_seconds=200,
    max_uses=3,
    remaining_uses=2,
    approval_id=None,
    outcomes=["done"],
)


class FakeApprovals:
    """Answers from what is above; denies what it is told to."""

    @answers(GET_APPROVER)
    async def get_approver(self, request: Nothing) -> ApproverView:
        return ApproverView(
            daemon="node-x", public_key=None, fingerprint=None, made_at=None, reset_at=None, sealed=None
        )

    @answers(LIST_APPROVALS)
    async def list_approvals(self, request: ListApprovals) -> list[ApprovalView]:
        return [WAITING]

    @answers(GET_APPROVAL)
    async def get_approval(self, request: OneApproval) -> ApprovalView:
        return WAITING

    @answers(DENY_APPROVAL)
    async def deny_approval(self, request: DenyApproval) -> ApprovalView:
        return WAITING.model_copy(update={"state": "denied", "waits": False})

    @answers(LIST_GRANTS)
    async def list_grants(self, request: ListGrants) -> list[GrantView]:
        return [WIDE]

    @answers(REVOKE_GRANT)
    async def revoke_grant(self, request: OneGrant) -> GrantView:
        return WIDE.model_copy(update={"state": "revoked"})
