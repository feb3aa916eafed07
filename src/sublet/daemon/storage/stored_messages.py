"""What is stored of the messages of a delegation: which words of INVITE and ACCEPT both sides are held to.

They have the names that the messages had when the form on the disk was fixed, and do not change with them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sublet.daemon.storage.stored_parts import Access, Stored, StoredTerms


class StoredSignature(Stored):
    """The signature of a message."""

    key: str
    recipient: str
    nonce: str
    at: int
    value: str


class StoredChain(Stored):
    """Who called until here."""

    execution_chain: list[str]
    lease_id: str
    ttl: int | None = None


class StoredTask(Stored):
    """What is to be done."""

    description: str
    prompt: str


class StoredLease(Stored):
    """The lease that was proposed."""

    ttl_seconds: int
    access_mode: Access


class StoredWorkspace(Stored):
    """What the lent directory is called."""

    export_name: str


class StoredRequirements(Stored):
    """What the executor must be able to do."""

    transport: str = "sshfs"


class StoredLentDirectory(Stored):
    """One of several directories."""

    name: str
    access_mode: Access


class StoredInviteMore(Stored):
    """INVITE beyond the specification."""

    signature: StoredSignature | None = None
    agent: str | None = None
    transports: list[str] = Field(default=["sshfs"])
    result_mode: Literal["live", "staged"] = "live"
    resources: list[StoredLentDirectory] = Field(default=[])
    chain: StoredChain | None = None
    require_enforced: list[str] = Field(default=[])
    terms: StoredTerms = StoredTerms()


class StoredInvite(Stored):
    """What the delegator asked for."""

    version: Literal["1"] = "1"
    type: Literal["INVITE"] = "INVITE"
    delegation_id: str
    task: StoredTask
    lease: StoredLease
    workspace: StoredWorkspace
    requirements: StoredRequirements = StoredRequirements()
    sublet: StoredInviteMore = StoredInviteMore()


class StoredMount(Stored):
    """Where the executor mounts."""

    mount_point: str


class StoredProfile(Stored):
    """How the executor's agent is held."""

    cwd_only: bool
    allow_network: bool
    allow_exec: bool


class StoredConstraints(Stored):
    """How far the executor narrows the lease."""

    accepted_access_mode: Access | None = None
    max_ttl_seconds: int | None = None
    sandbox_profile: StoredProfile | None = None
    public_key: str | None = None


class StoredReverse(Stored):
    """Where the executor accepts a connection."""

    port: int


class StoredAcceptMore(Stored):
    """ACCEPT beyond the specification."""

    signature: StoredSignature | None = None
    reverse: StoredReverse | None = None
    sandbox_enforced: list[str] = Field(default=[])
    transport: str = "sshfs"
    renewable: bool = False
    entity: str | None = None


class StoredAccept(Stored):
    """What the executor agreed to."""

    type: Literal["ACCEPT"] = "ACCEPT"
    delegation_id: str
    remote_mount: StoredMount
    remote_constraints: StoredConstraints = StoredConstraints()
    sublet: StoredAcceptMore = StoredAcceptMore()
