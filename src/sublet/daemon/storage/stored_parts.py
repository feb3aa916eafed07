"""What stored delegations and assignments are made of, as it is on the disk.

Each type here says what a JSON object in ``sublet.db`` looks like, and nothing else: no bounds, no methods, no default
that this program chooses today. What the control API or a peer's message looks like may change without these; the
conversion is then changed with it, and a test says so. A change here is one of the form on the disk: a new field has a
default for the rows that lack it, and anything else needs a migration.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Access = Literal["ro", "rw"]


class Stored(BaseModel):
    """Base: immutable; what is not known is left out, and values are taken from a record's attributes."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore", from_attributes=True)


class StoredDirectory(Stored):
    """A directory that is lent."""

    name: str
    path: str
    access_mode: Access


class StoredRequestedDirectory(Stored):
    """A further directory that was asked for."""

    name: str
    path: str
    access_mode: Access = "ro"


class StoredTerms(Stored):
    """What may be done less than the access mode says."""

    keep_all: bool = False
    no_delete: bool = False
    writable: list[str] = []
    deny: list[str] = []
    only: list[str] = []


class StoredRequest(StoredTerms):
    """What was asked for."""

    workspace_dir: str
    peer: str
    prompt: str
    description: str | None = None
    access_mode: Access = "rw"
    ttl_seconds: int = 3600
    reveal: list[str] = []
    unlock: list[str] = []
    include: list[str] = []
    exclude: list[str] = []
    git: Literal["hidden", "ro", "rw"] = "hidden"
    resources: list[StoredRequestedDirectory] = []
    result_mode: Literal["live", "staged"] = "live"
    result_branch: str | None = None
    transport: Literal["sshfs", "archive", "git", "auto"] = "sshfs"
    max_total_bytes: int | None = None
    max_files: int | None = None
    max_file_bytes: int | None = None
    require_enforced: list[str] = []
    watch: bool = False
    idempotency_key: str | None = None
    wait_for_peer: bool = False


class StoredError(Stored):
    """How something failed."""

    code: str
    message: str
    hint: str = ""
    from_peer: bool = False
    retry_after_seconds: int | None = None


class StoredChangeSet(Stored):
    """How much a result that is kept apart would change, and what became of it."""

    added: int = 0
    changed: int = 0
    deleted: int = 0
    renamed: int = 0
    mode_changed: int = 0
    lines_added: int = 0
    lines_deleted: int = 0
    directories_added: int = 0
    directories_deleted: int = 0
    directories_mode_changed: int = 0
    status: Literal["pending", "applied", "partly_applied", "discarded", "undone"] = "pending"
    branch: str | None = None
    branch_error: str | None = None
    branch_left_out: list[str] = []


class StoredPrompt(Stored):
    """How one prompt ended."""

    follow_up_id: str | None = None
    state: Literal["running", "done", "failed"]
    reason: str | None = None
    exit_code: int | None = None


class StoredResult(Stored):
    """What the executor said at the end."""

    final_summary: str
    highlights: list[str] = []
    notes: str = ""
    exit_code: int | None = None
    change_set: StoredChangeSet | None = None
    link_losses: int = 0
    interrupted_operations: int = 0
    prompts: list[StoredPrompt] = []
    untrusted: Literal[True] = True


class StoredCondition(Stored):
    """What is going on that is no state."""

    kind: Literal[
        "queued",
        "waiting_for_peer",
        "degraded",
        "unresponsive",
        "retrying",
        "waiting_for_approval",
        "waiting_for_answer",
        "ending",
    ]
    detail: str
    position: int | None = None


class StoredUsage(Stored):
    """What went over the data plane."""

    bytes_read: int = 0
    bytes_written: int = 0
    operations: int = 0
    files_touched: int = 0
    bytes_added: int = 0
    files_added: int = 0
    data_path: str | None = None


class StoredQuota(Stored):
    """How much the executor may add."""

    max_total_bytes: int
    max_files: int
    max_file_bytes: int


class StoredFollowUp(Stored):
    """A further prompt."""

    id: str
    prompt: str
    digest: str
    state: Literal["pending", "delivered", "running", "done", "failed", "refused"] = "pending"
    why: str = ""


class StoredRoom(Stored):
    """The room of a delegation."""

    room_id: str
    created_ms: int
    salt: str
    entity: str


class StoredFile(Stored):
    """One changed file of an audit."""

    path: str
    change: Literal["added", "changed", "deleted", "mode"]
    lines_added: int | None = None
    lines_deleted: int | None = None
    by: Literal["executor", "other"] = "executor"
    mode_before: str | None = None
    mode_after: str | None = None


class StoredDirectoryChange(Stored):
    """One changed directory of an audit."""

    path: str
    change: Literal["added", "deleted", "mode"]
    by: Literal["executor", "other"] = "executor"
    mode_before: str | None = None
    mode_after: str | None = None


class StoredRef(Stored):
    """A git reference that was moved."""

    name: str
    old: str | None = None
    new: str | None = None


class StoredEdit(Stored):
    """A file that somebody else edited meanwhile."""

    path: str
    kept: str | None = None
    overwritten: bool = True


class StoredAudit(Stored):
    """What happened to the directory."""

    added: list[str] = []
    changed: list[str] = []
    deleted: list[str] = []
    mode_changed: list[str] = []
    counts: dict[Literal["added", "changed", "deleted", "mode"], int] = {}
    by_others: list[str] = []
    others_edits: list[StoredEdit] = []
    not_kept: list[str] = []
    files: list[StoredFile] = []
    directories: list[StoredDirectoryChange] = []
    directory_counts: dict[Literal["added", "deleted", "mode"], int] = {}
    refs: list[StoredRef] = []
    refs_bring: list[str] = []
    index_marks: list[str] = []
    unaudited: list[str] = []
    unaudited_why: list[str] = []
    unaudited_count: int = 0
    lines_added: int = 0
    lines_deleted: int = 0
    truncated: bool = False
    patch_truncated: bool = False
    patch: str | None = None


class StoredPlannedMember(Stored):
    """A member of a panel as it was planned."""

    delegation_id: str
    address: str
    peer: str
    agent: str
    why: str


class StoredMemberOutcome(Stored):
    """How a member of a panel ended."""

    state: Literal["ready", "passed", "failed", "none"]
    seconds: float
    exit_code: int | None = None
    reason: str = ""
    output: str = ""


class StoredPanel(Stored):
    """A panel, and which of its members a delegation is."""

    id: str
    to: str
    index: int
    members: tuple[StoredPlannedMember, ...]
    check: str | None = None
    check_seconds: int = 600
    stop: Literal["all", "first_pass"] = "all"
    max_agent_seconds: int | None = None
    outcome: StoredMemberOutcome | None = None
