"""Approvals for the command line's tests: one that waits, one grant, and nobody who approves."""

from __future__ import annotations

from sublet.daemon.api.approvals import ApprovalView, ApproverView, GrantView
from sublet.daemon.control.approval_client import ApprovalClient

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


class FakeApprovals(ApprovalClient):
    """Answers from what is above; denies what it is told to."""

    def __init__(self) -> None:
        """Nothing is connected."""

    async def get_approver(self) -> ApproverView:
        return ApproverView(
            daemon="node-x", public_key=None, fingerprint=None, made_at=None, reset_at=None, sealed=None
        )

    async def list_approvals(self, *, limit: int = 100, pending: bool = True) -> list[ApprovalView]:
        return [WAITING]

    async def get_approval(self, approval_id: str) -> ApprovalView:
        return WAITING

    async def deny_approval(self, approval_id: str) -> ApprovalView:
        return WAITING.model_copy(update={"state": "denied", "waits": False})

    async def list_grants(self, *, limit: int = 100, usable: bool = False) -> list[GrantView]:
        return [WIDE]

    async def revoke_grant(self, grant_id: str) -> GrantView:
        return WIDE.model_copy(update={"state": "revoked"})
