"""Approvals, grants and the approver as faces show them."""

from __future__ import annotations

from sublet.daemon.api.approvals import MAX_SHOWN_CHARS, ApprovalView, ApproverView, GrantView
from sublet.daemon.approvals.approver import Pinned
from sublet.daemon.approvals.questions import Approval
from sublet.daemon.times import rfc3339
from sublet.policy.grants import Grant, Moment
from sublet.protocol.encoding import b64


def approval_view(approval: Approval, now: float, *, waits: bool, complete: bool) -> ApprovalView:
    """Return the view; ``complete`` with all arguments."""
    # Canonical JSON is ASCII: nothing in it can hide, or steer a terminal, and its digest is the one that is signed.
    text = f"{approval.tool} {approval.arguments}"
    return ApprovalView(
        id=approval.id,
        state=approval.state,
        agent=approval.agent,
        tool=approval.tool,
        digest=approval.digest,
        shown=text[:MAX_SHOWN_CHARS],
        truncated=len(text) > MAX_SHOWN_CHARS,
        arguments=approval.arguments if complete else None,
        scope=approval.scope,
        waits=waits and approval.state == "pending",
        created_at=rfc3339(approval.created_at),
        expires_at=rfc3339(approval.expires_at),
        remaining_seconds=max(0, int(approval.expires_at - now)) if approval.state == "pending" else 0,
        decided_at=rfc3339(approval.decided_at) if approval.decided_at is not None else None,
        decided_by=approval.decided_by,
        context=dict(approval.context),
    )


def grant_view(grant: Grant, now: Moment, outcomes: list[str]) -> GrantView:
    """Return the view of a grant as it is at ``now``."""
    return GrantView(
        id=grant.id,
        state=grant.state(now),
        agent=grant.agent,
        tool=grant.tool,
        digest=grant.digest,
        widened=grant.widened,
        when=dict(grant.when),
        scope=grant.scope,
        issued_by=grant.issued_by,
        issued_at=rfc3339(grant.issued.at),
        expires_at=rfc3339(grant.expires_at),
        remaining_seconds=max(0, int(grant.left(now))),
        max_uses=grant.max_uses,
        remaining_uses=grant.remaining,
        approval_id=grant.approval_id,
        outcomes=outcomes,
    )


def approver_remarks(pinned: Pinned) -> list[str]:
    """Return what the owner should know of the approver's key whenever she looks: that it was reset, if it was."""
    if pinned.reset_at is None:
        return []
    now = f"it is {pinned.fingerprint} now" if pinned.fingerprint else "there is none now"
    return [
        f"the approver's key was thrown away without its passphrase at {rfc3339(pinned.reset_at)}, and {now}; "
        "if that was not you, a program of this user did it: see sublet approver show"
    ]


def approver_view(pinned: Pinned, daemon: str) -> ApproverView:
    """Return whose signature this daemon takes for approvals, as faces show it; without a key where none is pinned."""
    return ApproverView(
        daemon=daemon,
        public_key=b64(pinned.public_key) if pinned.public_key is not None else None,
        fingerprint=pinned.fingerprint,
        made_at=rfc3339(pinned.made_at) if pinned.made_at is not None else None,
        reset_at=rfc3339(pinned.reset_at) if pinned.reset_at is not None else None,
        sealed=pinned.sealed,
    )
