"""Operations on approvals: what waits for a person, grants, and the key of who approves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from sublet.daemon.api.base import MAX_PAGE, Request, View
from sublet.daemon.api.operation import Asks, AsksInside, Nothing, Operation, Segment
from sublet.policy.decision import Action
from sublet.policy.grants import DEFAULT_MAX_USES, DEFAULT_TTL_SECONDS
from sublet.protocol.patterns import Pattern
from sublet.protocol.statements import SignedStatement

_APPROVAL_ID = Pattern(r"apr_[0-9a-f]{1,32}\Z")
_GRANT_ID = Pattern(r"grt_[0-9a-f]{1,32}\Z")
ApprovalId = Annotated[str, Segment(_APPROVAL_ID.match, "id of an approval", "See: sublet approvals list --all")]
GrantId = Annotated[str, Segment(_GRANT_ID.match, "id of a grant", "See: sublet grants list --all")]

MAX_SHOWN_CHARS = 2_000
"""Of the arguments in a list; ``arguments`` of a single approval are complete."""

When = dict[Annotated[str, Field(max_length=300)], Annotated[str, Field(max_length=1_000)]]


class ApproverView(View):
    """Whose approval counts here, if anybody's. ``sealed`` is of use with the passphrase only."""

    daemon: str
    public_key: str | None
    fingerprint: str | None
    made_at: str | None
    reset_at: str | None = Field(description="When a key was thrown away without its passphrase, if ever")
    sealed: str | None


class SetApprover(Request):
    """Pin a key: ``signed`` by the key that is pinned now, or by the new one where there is none."""

    public_key: Annotated[str, Field(max_length=64)]
    sealed: Annotated[str, Field(max_length=2_048)]
    signed: SignedStatement


class ForgetApprover(Request):
    """Forget the key: ``signed`` by it, or without its passphrase (``reset``), which is told loudly."""

    signed: SignedStatement | None = None
    reset: bool = False


class ApprovalView(View):
    """A call that waits for a person, or did. ``shown`` is the call in ASCII; ``truncated`` where it is not all."""

    id: str
    state: Literal["pending", "approved", "denied", "expired", "withdrawn"]
    agent: str
    tool: str
    digest: str = Field(description="SHA-256 of the complete canonical arguments, in hex")
    shown: str
    truncated: bool
    arguments: str | None = Field(default=None, description="All of them, as canonical JSON; of a single approval only")
    scope: str
    waits: bool = Field(description="Whether the agent still waits for it")
    created_at: str
    expires_at: str
    remaining_seconds: int
    decided_at: str | None
    decided_by: str | None
    context: dict[str, JsonValue]


class Terms(Request):
    """How far an approval goes: ``any_arguments`` widens it to all that satisfy the globs in ``when``."""

    ttl_seconds: int = DEFAULT_TTL_SECONDS
    max_uses: int = DEFAULT_MAX_USES
    any_arguments: bool = False
    when: When = Field(default={})


class ListApprovals(Request):
    """Which approvals to list: with ``pending`` those that can still be decided."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    pending: bool = True


class OneApproval(Request):
    """Names the question, open or decided, that an operation is about."""

    approval_id: ApprovalId


class DenyApproval(OneApproval):
    """An approval that is refused."""

    @property
    def deny(self) -> bool:
        """Always true: whoever may not approve may still be allowed to refuse."""
        return True


class ApproveRequest(OneApproval):
    """The decision as the approver has signed it."""

    signed: SignedStatement


class PassphraseApproval(OneApproval):
    """The decision of somebody who can't sign, such as a page in a browser: it is signed here, and nothing is kept."""

    passphrase: Annotated[str, Field(min_length=1, max_length=1_024, repr=False)]
    terms: Terms = Terms()


class ListGrants(Request):
    """Which grants to list: with ``usable`` those alone that can be used."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    usable: bool = False


class OneGrant(Request):
    """Names the grant that an operation is about."""

    grant_id: GrantId


class IssueGrant(Request):
    """A grant before any question. ``signed`` by the approver; only an agent that policy allows goes without."""

    agent: Annotated[str, Field(min_length=1, max_length=64)]
    tool: Annotated[str, Field(min_length=1, max_length=300)]
    arguments: dict[str, JsonValue] | None = None
    scope: Annotated[str, Field(max_length=128)] = ""
    terms: Terms = Terms()
    signed: SignedStatement | None = None


class GrantView(View):
    """A grant. ``widened`` says that it is for more than one exact call: for all that satisfy ``when``."""

    id: str
    state: Literal["usable", "used up", "expired", "revoked"]
    agent: str
    tool: str
    digest: str | None
    widened: bool
    when: dict[str, str]
    scope: str
    issued_by: str
    issued_at: str
    expires_at: str
    remaining_seconds: int
    max_uses: int
    remaining_uses: int
    approval_id: str | None
    outcomes: list[str] = Field(default=[], description="What came of each use, as far as it is known")


_APPROVER = "/v1/approver"
_APPROVALS = "/v1/approvals"
_APPROVAL = f"{_APPROVALS}/{{approval_id}}"
_GRANTS = "/v1/grants"

GET_APPROVER = Operation(
    "approver.get",
    "GET",
    _APPROVER,
    Nothing,
    ApproverView,
    asks=Asks(Action.APPROVAL_READ, "approver"),
    summary="Return whose approval counts here.",
)
SET_APPROVER = Operation(
    "approver.set",
    "POST",
    _APPROVER,
    SetApprover,
    ApproverView,
    asks=Asks(Action.APPROVAL_DECIDE, "approver"),
    summary="Pin a key, or seal the pinned one anew.",
)
FORGET_APPROVER = Operation(
    "approver.forget",
    "POST",
    f"{_APPROVER}/forget",
    ForgetApprover,
    ApproverView,
    asks=Asks(Action.APPROVAL_DECIDE, "approver", ("reset",)),
    summary="Forget the key and void all grants.",
)
LIST_APPROVALS = Operation(
    "approvals.list",
    "GET",
    _APPROVALS,
    ListApprovals,
    list[ApprovalView],
    asks=Asks(Action.APPROVAL_READ),
    summary="Return approvals, the newest first. Those that can still be decided have the agents in turn.",
)
GET_APPROVAL = Operation(
    "approvals.get",
    "GET",
    _APPROVAL,
    OneApproval,
    ApprovalView,
    asks=Asks(Action.APPROVAL_READ, "{approval_id}"),
    summary="Return one approval with its complete arguments.",
)
APPROVE = Operation(
    "approvals.approve",
    "POST",
    f"{_APPROVAL}/approve",
    ApproveRequest,
    ApprovalView,
    asks=Asks(Action.APPROVAL_DECIDE, "{approval_id}"),
    summary="Approve a call, as the approver has signed it.",
)
APPROVE_BY_PASSPHRASE = Operation(
    "approvals.passphrase",
    "POST",
    f"{_APPROVAL}/passphrase",
    PassphraseApproval,
    ApprovalView,
    asks=Asks(Action.APPROVAL_DECIDE, "{approval_id}"),
    summary="Approve a call by the passphrase of the approver's key. It is used once and neither kept nor logged.",
)
DENY_APPROVAL = Operation(
    "approvals.deny",
    "POST",
    f"{_APPROVAL}/deny",
    DenyApproval,
    ApprovalView,
    asks=Asks(Action.APPROVAL_DECIDE, "{approval_id}", ("deny",)),
    summary="Refuse a call. That needs no key.",
)
LIST_GRANTS = Operation(
    "grants.list",
    "GET",
    _GRANTS,
    ListGrants,
    list[GrantView],
    asks=Asks(Action.GRANT_READ),
    summary="Return grants, the newest first.",
)
ISSUE_GRANT = Operation(
    "grants.issue",
    "POST",
    _GRANTS,
    IssueGrant,
    GrantView,
    asks=AsksInside("an agent that would grant itself is refused, whatever policy says", (Action.GRANT_ISSUE,)),
    summary="Issue a grant before anything is asked.",
    status=201,
)
REVOKE_GRANT = Operation(
    "grants.revoke",
    "DELETE",
    f"{_GRANTS}/{{grant_id}}",
    OneGrant,
    GrantView,
    asks=Asks(Action.GRANT_REVOKE, "{grant_id}"),
    summary="Take a grant back. Twice is no error.",
)
