"""Serves the operations of ``api.approvals``: before each yes stands the approver's signature."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sublet.daemon.api.approval_statements import approve_statement, issue_statement
from sublet.daemon.api.approvals import (
    APPROVE,
    APPROVE_BY_PASSPHRASE,
    DENY_APPROVAL,
    FORGET_APPROVER,
    GET_APPROVAL,
    GET_APPROVER,
    ISSUE_GRANT,
    LIST_APPROVALS,
    LIST_GRANTS,
    REVOKE_GRANT,
    SET_APPROVER,
    ApprovalView,
    ApproveRequest,
    ApproverView,
    DenyApproval,
    ForgetApprover,
    GrantView,
    IssueGrant,
    ListApprovals,
    ListGrants,
    OneApproval,
    OneGrant,
    PassphraseApproval,
    SetApprover,
    Terms,
)
from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.operation import Nothing
from sublet.daemon.approvals.approver import Approver
from sublet.daemon.approvals.grant_store import GrantStore
from sublet.daemon.approvals.questions import Approval, Questions
from sublet.daemon.approvals.views import approval_view, approver_view, grant_view
from sublet.daemon.governing.gatekeeper import Gatekeeper, who
from sublet.daemon.operations.table import serves
from sublet.daemon.tasks.background import in_background
from sublet.policy.decision import Action, Subject
from sublet.policy.grants import Grant, arguments_digest, canonical_arguments, check_issuer, conditions_hold
from sublet.policy.names import plain
from sublet.policy.tool_calls import tool_resource
from sublet.policy.tool_names import tool_defect, tool_plain
from sublet.protocol.bounded_json import parse_json
from sublet.protocol.encoding import unb64
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.sealed_key import unseal
from sublet.protocol.signing import KEY_BYTES
from sublet.protocol.statement_signing import sign_statement
from sublet.protocol.statements import Statement, invalid
from sublet.protocol.text import clean_line

MAX_UNSEALING = 4
"""Passphrases that are checked or wait to be at one time."""


@dataclass(frozen=True, slots=True)
class ApprovalParts:
    """What the service is made of.

    Args:
        nests: tells which agents each agent calls as its own workers.
        subject_of: returns who an agent's id, or ``mcp:NAME``, means to policy; None where there is no such agent.
    """

    gate: Gatekeeper
    approver: Approver
    grants: GrantStore
    questions: Questions
    daemon: str
    nests: Callable[[], Mapping[str, Sequence[str]]]
    subject_of: Callable[[str], Subject | None]
    clock: Callable[[], float] = time.time


class ApprovalService:
    """Pins who approves, takes decisions, and issues and revokes grants."""

    def __init__(self, parts: ApprovalParts) -> None:
        self._parts = parts
        self._gate = parts.gate
        self._unsealing = asyncio.Lock()
        self._passphrases = 0

    @serves(GET_APPROVER)
    async def get_approver(self, request: Nothing, caller: Subject) -> ApproverView:
        return approver_view(self._parts.approver.pinned, self._parts.daemon)

    @serves(SET_APPROVER)
    async def set_approver(self, request: SetApprover, caller: Subject) -> ApproverView:
        """Pin a key, or seal the pinned one anew.

        Raises:
            SubletError: ``APPROVAL_INVALID`` where the key that is pinned now has not signed it.
        """
        new = unb64(request.public_key, KEY_BYTES)
        if new is None:
            raise SubletError(LocalCode.INVALID_ARGUMENT, "that is no public key", "Use: sublet approver init")
        expected = Statement(
            daemon=self._parts.daemon,
            decision="set-key",
            subject=request.public_key,
            digest=hashlib.sha256(request.sealed.encode()).hexdigest(),
            nonce=request.signed.statement.nonce,
            at=request.signed.statement.at,
        )
        if request.signed.statement != expected:
            raise invalid("another key was signed")
        self._parts.approver.verify(request.signed, signer=self._parts.approver.pinned.public_key or new)
        pinned = await self._parts.approver.pin(new, request.sealed, who(caller))
        return approver_view(pinned, self._parts.daemon)

    @serves(FORGET_APPROVER)
    async def forget_approver(self, request: ForgetApprover, caller: Subject) -> ApproverView:
        """Forget the key and void all grants.

        Raises:
            SubletError: ``APPROVER_MISSING``; ``APPROVAL_INVALID`` where its key has not signed it and no reset is
                asked for.
        """
        if not request.reset:
            self._parts.approver.require()
            if request.signed is None or request.signed.statement.decision != "remove-key":
                raise invalid("it is not signed")
            self._parts.approver.verify(request.signed)
        pinned = await self._parts.approver.forget(who(caller), reset=request.reset)
        return approver_view(pinned, self._parts.daemon)

    @serves(LIST_APPROVALS)
    async def list_approvals(self, request: ListApprovals, caller: Subject) -> list[ApprovalView]:
        found = await self._parts.questions.list(limit=request.limit, pending=request.pending)
        return [self._view(one) for one in found]

    @serves(GET_APPROVAL)
    async def get_approval(self, request: OneApproval, caller: Subject) -> ApprovalView:
        return self._view(await self._parts.questions.find(request.approval_id), complete=True)

    @serves(APPROVE)
    async def approve(self, request: ApproveRequest, caller: Subject) -> ApprovalView:
        """Approve a call, as the approver has signed it.

        Raises:
            SubletError: ``NOT_FOUND``, ``CONFLICT`` where it is not open any more, ``APPROVER_MISSING``,
                ``APPROVAL_INVALID`` for whatever but the approver's signature under exactly this call.
        """
        approval = await self._open(request.approval_id)
        statement = request.signed.statement
        terms = Terms(
            ttl_seconds=statement.ttl_seconds,
            max_uses=statement.max_uses,
            any_arguments=statement.any_arguments,
            when=statement.when,
        )
        if statement != approve_statement(
            self._parts.daemon, self._view(approval), terms, nonce=statement.nonce, at=statement.at
        ):
            raise invalid("another call was signed")
        self._parts.approver.verify(request.signed)
        return await self._approved(approval, terms, who(caller))

    @serves(APPROVE_BY_PASSPHRASE)
    async def approve_by_passphrase(self, request: PassphraseApproval, caller: Subject) -> ApprovalView:
        """Approve a call by the passphrase of the approver's key.

        Raises:
            SubletError: as ``approve``; ``PASSPHRASE_WRONG``; ``UNAVAILABLE`` where ``MAX_UNSEALING`` wait already.
        """
        approval = await self._open(request.approval_id)
        public_key = self._parts.approver.require()
        sealed = self._parts.approver.pinned.sealed or ""
        if self._passphrases >= MAX_UNSEALING:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"{MAX_UNSEALING} passphrases are being checked", "Try again in a moment."
            )
        self._passphrases += 1
        try:
            # One at a time, as each takes 256 MiB; nobody guesses faster through us than without us.
            async with self._unsealing:
                key = await in_background(unseal, sealed, request.passphrase, public_key)
        finally:
            self._passphrases -= 1
        signed = sign_statement(approve_statement(self._parts.daemon, self._view(approval), request.terms), key)
        self._parts.approver.verify(signed)
        return await self._approved(approval, request.terms, f"{who(caller)} by passphrase")

    @serves(DENY_APPROVAL)
    async def deny_approval(self, request: DenyApproval, caller: Subject) -> ApprovalView:
        """Refuse a call.

        Raises:
            SubletError: ``NOT_FOUND``, ``CONFLICT`` where it is not open any more.
        """
        return self._view(await self._parts.questions.deny(request.approval_id, who(caller)), complete=True)

    @serves(LIST_GRANTS)
    async def list_grants(self, request: ListGrants, caller: Subject) -> list[GrantView]:
        found = await self._parts.grants.list(limit=request.limit, usable=request.usable)
        return [await self._grant_view(grant) for grant in found]

    @serves(ISSUE_GRANT)
    async def issue_grant(self, request: IssueGrant, caller: Subject) -> GrantView:
        """Issue a grant before anything is asked.

        Raises:
            SubletError: ``POLICY_DENIED`` for an issuer that policy does not allow, and for an agent that would grant
                itself, whatever policy says; ``APPROVER_MISSING`` and ``APPROVAL_INVALID`` for a person.
        """
        if caller.kind == "agent":
            check_issuer(caller.name, request.agent, self._parts.nests(), await self._callers_of(request.agent))
        await self._gate.ask(
            caller, Action.GRANT_ISSUE, tool_plain(request.tool), agent=plain(request.agent), issuer=caller.name
        )
        digest = None
        if request.arguments is not None:
            digest = arguments_digest(canonical_arguments(request.arguments))
        if (digest is None) != request.terms.any_arguments:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                "a grant is for exact arguments, or explicitly for any",
                "Give --args JSON, or --any-arguments.",
            )
        self._check_useful(request)
        if caller.kind != "agent":
            self._parts.approver.require()
            if request.signed is None:
                raise invalid("it is not signed")
            statement = request.signed.statement
            if statement != issue_statement(self._parts.daemon, request, nonce=statement.nonce, at=statement.at):
                raise invalid("another grant was signed")
            self._parts.approver.verify(request.signed)
        grant = self._parts.grants.make(
            agent=request.agent,
            tool=request.tool,
            digest=digest,
            issued_by=who(caller),
            ttl_seconds=request.terms.ttl_seconds,
            max_uses=request.terms.max_uses,
            when=request.terms.when,
            scope=request.scope,
        )
        return await self._grant_view(await self._parts.grants.issue(grant))

    @serves(REVOKE_GRANT)
    async def revoke_grant(self, request: OneGrant, caller: Subject) -> GrantView:
        return await self._grant_view(await self._parts.grants.revoke(request.grant_id, who(caller)))

    def _check_useful(self, request: IssueGrant) -> None:
        """Refuse a grant that nobody could ever use.

        Raises:
            SubletError: ``NOT_FOUND`` for an agent that is not there, ``INVALID_ARGUMENT`` for a tool that is none,
                ``POLICY_DENIED`` for one that the agent is denied whatever is granted.
        """
        subject = self._parts.subject_of(request.agent)
        if subject is None:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"there is no agent {clean_line(request.agent, 80)!r} here",
                "See: sublet agents; an MCP host is mcp:NAME.",
            )
        if why := tool_defect(request.tool) or ("a grant is for one tool" if "*" in request.tool else ""):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{clean_line(request.tool, 80)!r} can't be granted: {why}",
                "Name one tool.",
            )
        if denied := self._gate.never(subject, Action.TOOL_CALL, request.tool):
            raise SubletError(
                LocalCode.POLICY_DENIED,
                f"{request.agent} is denied {tool_plain(request.tool)} whatever is granted: {denied.reason}",
                f"A grant does not lift a deny; see rule {denied.rule}: sublet policy show",
            )

    async def _callers_of(self, agent: str) -> list[str]:
        """Return through whom those calls of ``agent`` came that wait now: none of them approves her own errand."""
        waiting = [one for one in await self._parts.questions.list(limit=MAX_PAGE) if one.agent == plain(agent)]
        chains = [chain for one in waiting if isinstance(chain := one.context.get("chain"), list)]
        return [str(address) for chain in chains for address in chain]

    async def _open(self, approval_id: str) -> Approval:
        approval = await self._parts.questions.find(approval_id)
        if approval.state != "pending":
            raise SubletError(
                LocalCode.CONFLICT, f"{approval.id} is {approval.state} already", "See: sublet approvals list --all"
            )
        return approval

    async def _approved(self, approval: Approval, terms: Terms, by: str) -> ApprovalView:
        self._check_fits(approval, terms)
        grant = self._granting(approval, terms, by)
        return self._view(await self._parts.questions.approve(approval, grant, by), complete=True)

    def _check_fits(self, approval: Approval, terms: Terms) -> None:
        """Refuse to approve a call by a condition that the call itself does not fit: it would be asked about again.

        Raises:
            SubletError: ``INVALID_ARGUMENT``.
        """
        found = approval.context.get("paths")
        paths = [str(path) for path in found] if isinstance(found, list) else []
        arguments = parse_json(approval.arguments)
        resource = tool_resource(approval.tool, arguments if isinstance(arguments, dict) else {}, paths)
        if terms.when and not conditions_hold(terms.when, resource, self._parts.clock()):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                "the call itself does not fit this condition, so it would go on waiting",
                f"Leave the condition out, or word it by what it calls: sublet approvals show {approval.id}",
            )

    def _granting(self, approval: Approval, terms: Terms, by: str) -> Grant:
        return self._parts.grants.make(
            agent=approval.agent,
            tool=approval.tool,
            digest=None if terms.any_arguments else approval.digest,
            issued_by=by,
            ttl_seconds=terms.ttl_seconds,
            max_uses=terms.max_uses,
            when=terms.when,
            scope=approval.scope,
            ends_at=approval.ends_at,
            approval_id=approval.id,
        )

    def _view(self, approval: Approval, *, complete: bool = False) -> ApprovalView:
        waits = self._parts.questions.waits(approval.id)
        return approval_view(approval, self._parts.clock(), waits=waits, complete=complete)

    async def _grant_view(self, grant: Grant) -> GrantView:
        return grant_view(grant, self._parts.grants.now(), await self._parts.grants.outcomes(grant.id))
