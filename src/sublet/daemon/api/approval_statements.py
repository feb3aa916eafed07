"""What exactly is signed for which request; both who signs and who verifies make it here."""

from __future__ import annotations

from sublet.daemon.api.approvals import ApprovalView, IssueGrant, Terms
from sublet.policy.grants import arguments_digest, canonical_arguments
from sublet.protocol.statements import Statement


def approve_statement(
    daemon: str, approval: ApprovalView, terms: Terms, *, nonce: str | None = None, at: int | None = None
) -> Statement:
    """Return what is signed to approve a call on these terms; ``nonce`` and ``at`` are new unless given."""
    statement = Statement(
        daemon=daemon,
        decision="approve",
        subject=approval.id,
        agent=approval.agent,
        tool=approval.tool,
        digest=approval.digest,
        any_arguments=terms.any_arguments,
        when=terms.when,
        scope=approval.scope,
        ttl_seconds=terms.ttl_seconds,
        max_uses=terms.max_uses,
    )
    return _stamped(statement, nonce, at)


def issue_statement(daemon: str, request: IssueGrant, *, nonce: str | None = None, at: int | None = None) -> Statement:
    """Return what is signed to issue a grant; ``nonce`` and ``at`` are new unless given."""
    digest = "" if request.arguments is None else arguments_digest(canonical_arguments(request.arguments))
    statement = Statement(
        daemon=daemon,
        decision="issue",
        agent=request.agent,
        tool=request.tool,
        digest=digest,
        any_arguments=request.terms.any_arguments,
        when=request.terms.when,
        scope=request.scope,
        ttl_seconds=request.terms.ttl_seconds,
        max_uses=request.terms.max_uses,
    )
    return _stamped(statement, nonce, at)


def _stamped(statement: Statement, nonce: str | None, at: int | None) -> Statement:
    given = {name: value for name, value in (("nonce", nonce), ("at", at)) if value is not None}
    return statement.model_copy(update=given)
