"""What faces exchange with the daemon about approvals, grants and the approver's key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from sublet.daemon.api.base import Request, View
from sublet.policy.grants import DEFAULT_MAX_USES, DEFAULT_TTL_SECONDS
from sublet.protocol.statements import SignedStatement

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


class ApproveRequest(Request):
    """The decision as the approver has signed it."""

    signed: SignedStatement


class PassphraseApproval(Request):
    """The decision of somebody who can't sign, such as a page in a browser: it is signed here, and nothing is kept."""

    passphrase: Annotated[str, Field(min_length=1, max_length=1_024, repr=False)]
    terms: Terms = Terms()


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
