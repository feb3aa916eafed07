"""The rows of ``delegations`` and ``assignments``: the column ``record``, and its conversion from and to records.

A record in memory speaks the words of the control API and of the protocol, which change with them. What is on the disk
has types of its own, so that no such change reaches it unseen: ``to_json`` and ``read_delegation`` go through them, and
``tests/golden/stored-records.json`` holds their form.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sublet.daemon.storage.records import AssignmentRecord, DelegationRecord
from sublet.daemon.storage.stored_messages import StoredAccept, StoredChain, StoredInvite
from sublet.daemon.storage.stored_parts import (
    Access,
    Stored,
    StoredAudit,
    StoredChangeSet,
    StoredCondition,
    StoredDirectory,
    StoredError,
    StoredFollowUp,
    StoredPanel,
    StoredQuota,
    StoredRequest,
    StoredResult,
    StoredRoom,
    StoredUsage,
)


class StoredDelegation(Stored):
    """One delegation of ours."""

    id: str
    state: Literal["created", "invited", "accepted", "started", "running", "completed", "error", "cancelled", "expired"]
    caller: str
    request: StoredRequest
    peer: str
    peer_fingerprint: str | None = None
    agent: str | None
    resources: tuple[StoredDirectory, ...]
    description: str
    access_mode: Access
    ttl_seconds: int
    created_at: str
    updated_at: str
    chain: StoredChain | None = None
    expires_at: str | None = None
    condition: StoredCondition | None = None
    transport: Literal["sshfs", "archive", "git"] | None = None
    task_id: str | None = None
    context_id: str | None = None
    accept: StoredAccept | None = None
    room: StoredRoom | None = None
    snapshots: dict[str, str] = Field(default={})
    result_snapshots: dict[str, str] = Field(default={})
    result: StoredResult | None = None
    error: StoredError | None = None
    hidden: list[str] = Field(default=[])
    unmountable: list[str] = Field(default=[])
    build_files: list[str] = Field(default=[])
    sandbox_enforced: list[str] = Field(default=[])
    left_out: int = 0
    git_hidden: list[str] = Field(default=[])
    change_set: StoredChangeSet | None = None
    returned: bool = False
    left_behind: list[str] = Field(default=[])
    audit: StoredAudit | None = None
    audit_error: StoredError | None = None
    usage: StoredUsage = StoredUsage()
    quota: StoredQuota
    follow_ups: tuple[StoredFollowUp, ...] = ()
    settled: bool = False
    taken_back: bool = False
    panel: StoredPanel | None = None
    generation: int = 1


class StoredAssignment(Stored):
    """One delegation of a peer's."""

    id: str
    state: Literal["pending", "active", "completed", "error"]
    peer: str
    peer_fingerprint: str
    agent: str
    invite: StoredInvite
    accept: StoredAccept
    mount_point: str
    created_at: str
    updated_at: str
    access_mode: Access = "rw"
    expires_at: str | None = None
    generation: int = 1
    error: StoredError | None = None
    outcome: Literal["done", "failed", "timeout", "limit", "cancelled", "crashed"] | None = None
    exit_code: int | None = None


def to_json(record: DelegationRecord | AssignmentRecord) -> str:
    """Return a record as its row keeps it."""
    stored = StoredDelegation if isinstance(record, DelegationRecord) else StoredAssignment
    return stored.model_validate(record).model_dump_json()


def read_delegation(raw: bytes) -> DelegationRecord:
    """Return the record of a row.

    Raises:
        ValueError: it is none.
    """
    return DelegationRecord.model_validate(StoredDelegation.model_validate_json(raw), from_attributes=True)


def read_assignment(raw: bytes) -> AssignmentRecord:
    """Return the record of a row; as ``read_delegation``."""
    return AssignmentRecord.model_validate(StoredAssignment.model_validate_json(raw), from_attributes=True)
