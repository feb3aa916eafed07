"""What the journal keeps of a delegation and of an assignment; views are made from it on every read."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from sublet.daemon.api.assignments import AssignmentView
from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.cautions import cautions
from sublet.daemon.api.delegation_views import (
    SHOWN_AS_ASKED,
    ChangeSet,
    ConditionView,
    DelegationView,
    ErrorView,
    FollowUpState,
    FollowUpView,
    LeaseQuota,
    LeaseUsageView,
    ResourceView,
    ResultView,
    SandboxView,
)
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.storage.panel_parts import PanelPart
from sublet.policy.request_rules import Narrowing
from sublet.protocol.bounds import MAX_DESCRIPTION_CHARS, AccessMode, GitMode, TransportName
from sublet.protocol.delegation.phases import lapsed
from sublet.protocol.delegation.reasons import lease_over
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import (
    ASSIGNMENT_TABLE,
    DELEGATION_TABLE,
    AssignmentState,
    DelegationEvent,
    DelegationState,
    advance,
    is_terminal,
)
from sublet.protocol.messages import Accept, ChainExtension, Invite
from sublet.protocol.text import clean_line
from sublet.protocol.times import unix_seconds

MAX_SHOWN_PROMPT_CHARS = 200


class Record(BaseModel):
    """Base of records: replaced, never changed in place."""

    model_config = ConfigDict(defer_build=True, frozen=True)


class ResourceRecord(Record):
    """One directory that is lent: its name in the view, its real path, and the access that is given."""

    name: str
    path: str
    access_mode: AccessMode


class FollowUpRecord(Record):
    """A further prompt: ``pending`` until the executor has taken it, or ``refused`` it for ``why``.

    The whole ``prompt`` is kept as long as it may have to be sent, and ``digest`` to tell another from it.
    """

    id: str
    prompt: str
    digest: str
    state: FollowUpState = "pending"
    why: str = ""

    def settled(self, state: FollowUpState, why: str) -> FollowUpRecord:
        """Return it in another state, and of its prompt what is shown."""
        shown = clean_line(self.prompt.strip().partition("\n")[0], MAX_SHOWN_PROMPT_CHARS)
        return self.model_copy(update={"prompt": shown, "state": state, "why": why})

    def view(self, *, over: bool) -> FollowUpView:
        """Return it as it is shown; what was not taken before the end, or not done, never will be."""
        if over and self.state == "pending":
            return self.settled("refused", "the work was over before it was taken").view(over=over)
        if over and self.state == "running":
            return self.settled("failed", "the work was ended while it ran").view(over=over)
        shown = self.settled(self.state, self.why)
        return FollowUpView(id=shown.id, prompt=shown.prompt, state=shown.state, why=shown.why)


class RoomRecord(Record):
    """The room of a delegation, whose id follows from who opens it, ``created_ms`` (Unix time) and ``salt`` (hex).

    ``entity`` is as whom the executor's agent speaks there.
    """

    room_id: str
    created_ms: int
    salt: str
    entity: str


class DelegationRecord(Record):
    """The delegator's memory of one delegation.

    ``resources`` are its directories, the first of which is the one to work in; ``access_mode`` is the widest of their
    modes; ``transport`` is how they travel, once the executor has chosen. ``snapshots`` and ``result_snapshots`` are
    what the audit compares, by the name of the directory.
    ``result`` is there as soon as the peer has said DONE; access ends with it, and only the audit is left to do.
    ``change_set`` is a staged result, from the end of access on, and what became of it later. ``returned`` tells if
    all changes of a transport that brings them at the end have arrived, and ``left_behind`` what of them was not made.
    ``taken_back`` tells that what a live lease wrote was taken back.
    ``panel`` is what it is a member of.
    ``settled`` tells that nothing more will happen to it: resources are released and the audit is made.
    ``accept`` is what the executor agreed to; it holds no secret.
    ``generation`` grows with every process that takes the delegation over, so that a zombie's words can be told.
    """

    id: str
    state: DelegationState = DelegationState.CREATED
    caller: str
    request: CreateDelegation
    peer: str
    peer_fingerprint: str | None = None
    """Of the peer's key, by which it is found again, whatever it is called then; older versions kept none."""
    agent: str | None
    resources: tuple[ResourceRecord, ...]
    description: str
    access_mode: AccessMode
    ttl_seconds: int
    created_at: str
    updated_at: str
    chain: ChainExtension | None = None
    """Who called until here, where an agent asked for it."""
    expires_at: str | None = None
    condition: ConditionView | None = None
    transport: TransportName | None = None
    task_id: str | None = None
    context_id: str | None = None
    accept: Accept | None = None
    room: RoomRecord | None = None
    snapshots: dict[str, str] = {}
    result_snapshots: dict[str, str] = {}
    result: ResultView | None = None
    error: ErrorView | None = None
    hidden: list[str] = []
    unmountable: list[str] = []
    build_files: list[str] = []
    sandbox_enforced: list[str] = []
    left_out: int = 0
    git_hidden: list[str] = []
    change_set: ChangeSet | None = None
    returned: bool = False
    left_behind: list[str] = []
    audit: AuditReport | None = None
    audit_error: ErrorView | None = None
    usage: LeaseUsageView = LeaseUsageView()
    quota: LeaseQuota
    follow_ups: tuple[FollowUpRecord, ...] = ()
    settled: bool = False
    taken_back: bool = False
    panel: PanelPart | None = None
    generation: int = 1

    @property
    def workspace(self) -> str:
        """Real path of the directory to work in."""
        return self.resources[0].path

    def _changed(self) -> list[str]:
        return [] if self.audit is None else [*self.audit.added, *self.audit.changed]

    @property
    def terminal(self) -> bool:
        """Whether the state has no way out."""
        return is_terminal(DELEGATION_TABLE, self.state)

    def overdue(self, now: float) -> bool:
        """Tell whether the lease is over at ``now`` (Unix seconds) although nobody has said so yet: ``lapsed``."""
        return lapsed(self.state, self.expires_at, done=self.result is not None, wall=now)

    def declared_sandbox(self) -> SandboxView | None:
        """Return how the executor says that its agent is held; None where it has said nothing (yet)."""
        profile = self.accept.remote_constraints.sandbox_profile if self.accept is not None else None
        return SandboxView(**profile.model_dump()) if profile is not None else None

    def _git_shown(self) -> GitMode:
        """Return what is shown of a repository: nothing where each that was asked for stays hidden."""
        return "hidden" if len(self.git_hidden) >= len(self.resources) else self.request.git

    def view(self, now: float, *, cursor: int = 0) -> DelegationView:
        """Return the delegation as a face shows it; an overdue lease reads as expired, whoever looks first."""
        state, error = self.state, self.error
        if self.overdue(now):
            state = advance(DELEGATION_TABLE, state, DelegationEvent.EXPIRE)
            error = error_view(lease_over(self.ttl_seconds))
        remaining = None
        if self.expires_at is not None and self.result is None and not is_terminal(DELEGATION_TABLE, state):
            remaining = max(0, int(unix_seconds(self.expires_at) - now))
        return DelegationView(
            delegation_id=self.id,
            state=state,
            condition=self.condition,
            peer=self.peer,
            agent=self.agent,
            workspace_dir=self.workspace,
            panel_id=self.panel.id if self.panel is not None else None,
            resources=[ResourceView(**resource.model_dump()) for resource in self.resources],
            description=self.description,
            access_mode=self.access_mode,
            ttl_seconds=self.ttl_seconds,
            created_at=self.created_at,
            updated_at=self.updated_at,
            expires_at=self.expires_at,
            transport=self.transport,
            room_id=self.room.room_id if self.room is not None else None,
            left_behind=self.left_behind,
            remaining_seconds=remaining,
            result=self._shown_result(),
            error=error,
            hidden=self.hidden,
            unmountable=self.unmountable,
            cautions=cautions(self.transport, self.build_files, self._changed()),
            requested_ttl_seconds=self.request.ttl_seconds,
            sandbox_enforced=self.sandbox_enforced,
            sandbox_profile=self.declared_sandbox(),
            left_out=self.left_out,
            **{name: getattr(self.request, name) for name in SHOWN_AS_ASKED},
            terms=self.request.term_lines(),
            settled=self.settled,
            undo=self._undo(),
            revealed=self.request.reveal,
            unlocked=self.request.unlock,
            git=self._git_shown(),
            git_hidden=self.git_hidden,
            audit=self.audit,
            audit_error=self.audit_error,
            usage=self.usage,
            quota=self.quota if self.access_mode == "rw" else None,
            follow_ups=[
                one.view(over=is_terminal(DELEGATION_TABLE, state) or self.result is not None)
                for one in self.follow_ups
            ],
            cursor=cursor,
        )

    def _undo(self) -> Literal["possible", "done"] | None:
        """Return whether `undo` can take back what was written into the directory, or has done so."""
        if self.change_set is not None:
            if self.change_set.status == "undone":
                return "done"
            return "possible" if self.change_set.status in ("applied", "partly_applied") else None
        if self.taken_back:
            return "done"
        if not self.settled or not self.result_snapshots or self.access_mode == "ro":
            return None
        return None if self.audit is not None and self.audit.is_empty else "possible"

    def _shown_result(self) -> ResultView | None:
        """Return what the peer said, with what is kept apart of its work, also where it said nothing."""
        if self.change_set is None:
            return self.result
        return (self.result or ResultView(final_summary="")).model_copy(update={"change_set": self.change_set})


class AssignmentRecord(Record):
    """The executor's memory of one delegation.

    ``generation`` is the highest of the delegator's processes that has been heard: what an older one says is refused.
    """

    id: str
    state: AssignmentState = AssignmentState.PENDING
    peer: str
    peer_fingerprint: str
    agent: str
    invite: Invite
    accept: Accept
    mount_point: str
    created_at: str
    updated_at: str
    access_mode: AccessMode = "rw"
    expires_at: str | None = None
    generation: int = 1
    error: ErrorView | None = None
    outcome: Literal["done", "failed", "timeout", "limit", "cancelled", "crashed"] | None = None
    exit_code: int | None = None

    @property
    def narrowing(self) -> Narrowing:
        """What the INVITE leaves of what its agent may call."""
        terms = self.invite.sublet.terms
        return Narrowing(tuple(terms.deny), tuple(terms.only))

    def view(self, now: float) -> AssignmentView:
        """Return the assignment as a face shows it at ``now`` (Unix seconds)."""
        over = is_terminal(ASSIGNMENT_TABLE, self.state)
        left = None if over or self.expires_at is None else max(0, int(unix_seconds(self.expires_at) - now))
        return AssignmentView(
            delegation_id=self.id,
            state=self.state,
            peer=self.peer,
            agent=self.agent,
            description=clean_line(self.invite.task.description, MAX_DESCRIPTION_CHARS),
            access_mode=self.invite.lease.access_mode,
            created_at=self.created_at,
            updated_at=self.updated_at,
            expires_at=self.expires_at,
            remaining_seconds=left,
            outcome=self.outcome,
            exit_code=self.exit_code,
            error=self.error,
        )


def error_view(error: SubletError) -> ErrorView:
    """Return ``error`` as a record keeps it."""
    return ErrorView.model_validate(error.as_json())
