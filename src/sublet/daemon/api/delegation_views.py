"""What is shown of a delegation: its state, its result, and everything that a person may ask about it."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.base import View
from sublet.protocol.bounds import AccessMode, GitMode, ResultMode, TransportName
from sublet.protocol.change_counts import ChangeCounts, ChangeSetStatus
from sublet.protocol.lease_terms import LeaseTerms
from sublet.protocol.lifecycle import DelegationState


class ErrorView(View):
    """A failure as the user sees it. Where ``from_peer``, its words are the peer's: cleaned and not to be trusted."""

    code: str
    message: str
    hint: str = ""
    from_peer: bool = False
    retry_after_seconds: int | None = Field(default=None, description="When trying again may succeed")


class ChangeSet(View, ChangeCounts):
    """How much a result that is kept apart would change in the directory (DESIGN 4.7)."""

    status: ChangeSetStatus = "pending"
    branch: str | None = Field(default=None, description="Git branch that it was put on")
    branch_error: str | None = Field(default=None, description="Why it is not on the branch that was asked for")
    branch_left_out: list[str] = Field(
        default=[], description="What of it is not on the branch, with the reason; it waits to be applied"
    )

    @property
    def is_empty(self) -> bool:
        """Whether it would change nothing."""
        return not self.files + self.directories


class PromptView(View):
    """How one prompt of several ended."""

    follow_up_id: str | None = Field(default=None, description="None is the first prompt")
    state: Literal["running", "done", "failed"]
    reason: str | None = Field(default=None, description="Where it failed: failed, timeout, limit or crashed")
    exit_code: int | None = None

    def ended(self) -> str:
        """Return in a few words how it ended."""
        if self.state != "failed":
            return self.state
        if self.reason == "failed" and self.exit_code is not None:
            return f"failed with exit code {self.exit_code}"
        return "failed" if self.reason in (None, "failed") else f"failed ({self.reason})"


class ResultView(View):
    """What the executor said at the end. Its text is the peer's: cleaned, bounded and not to be trusted."""

    final_summary: str
    highlights: list[str] = Field(default=[])
    notes: str = ""
    exit_code: int | None = None
    change_set: ChangeSet | None = Field(default=None, description="Where the result is kept apart from the directory")
    link_losses: int = Field(default=0, description="How often the link was lost and came back while the work ran")
    interrupted_operations: int = Field(default=0, description="Calls that ended with an I/O error for that")
    prompts: list[PromptView] = Field(
        default=[], description="How each prompt ended, in order, where there was more than one; the last one counts"
    )
    untrusted: Literal[True] = True

    def prompt_notes(self) -> list[str]:
        """Return how each prompt ended, in one line each; nothing where there was only one."""
        first = ("first prompt",) if self.prompts else ()
        names = (*first, *(f"follow-up {number}" for number in range(1, len(self.prompts))))
        return [f"{name}: {prompt.ended()}" for name, prompt in zip(names, self.prompts, strict=True)]

    def link_note(self) -> str:
        """Return what to say of a link that was lost, in one line; empty where it never was."""
        if not self.link_losses:
            return ""
        times = "once" if self.link_losses == 1 else f"{self.link_losses} times"
        calls = "1 call" if self.interrupted_operations == 1 else f"{self.interrupted_operations:,} calls"
        return f"the link to the files was lost {times} and came back; {calls} failed with an I/O error for that"


class ConditionView(View):
    """What is going on that is not a state of the spec."""

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


class LeaseUsageView(View):
    """What went over the data plane."""

    bytes_read: int = 0
    bytes_written: int = 0
    operations: int = 0
    files_touched: int = 0
    bytes_added: int = Field(default=0, description="By file size, net of what was removed; counts as max_total_bytes")
    files_added: int = Field(default=0, description="Names, net of those removed; counts as max_files")
    data_path: str | None = None


class ResourceView(View):
    """A directory of a delegation."""

    name: str = Field(description="Its name in the executor's view")
    path: str
    access_mode: AccessMode


class LeaseQuota(View):
    """How much the executor may add, by the request and by policy, over all directories."""

    max_total_bytes: int
    max_files: int
    max_file_bytes: int


FollowUpState = Literal["pending", "delivered", "running", "done", "failed", "refused"]


class FollowUpView(View):
    """A further prompt in the same lease: the beginning of its first line, and what became of it."""

    id: str
    prompt: str
    state: FollowUpState
    why: str = Field(default="", description="Why it was refused, or how it failed")


class SandboxView(View):
    """How an executor says that its agent is held (AWCP 7.2)."""

    cwd_only: bool = Field(description="It sees what is lent and the system's programs alone")
    allow_network: bool
    allow_exec: bool = Field(description="It may start programs")


SHOWN_AS_ASKED: Final = ("result_mode", *LeaseTerms.model_fields)
"""Fields of ``DelegationView`` that show options of the request under their own names, as they were asked for."""


class DelegationView(View, LeaseTerms):
    """A delegation as every face shows it (AWCP 6.6 ``get_status``)."""

    delegation_id: str
    state: DelegationState
    condition: ConditionView | None = None
    peer: str
    agent: str | None = None
    panel_id: str | None = Field(default=None, description="The panel that it is a member of")
    workspace_dir: str
    resources: list[ResourceView] = Field(default=[], description="Every directory that is lent, the first one first")
    description: str
    access_mode: AccessMode = Field(description="The widest access that is given to any of them")
    result_mode: ResultMode = "live"
    ttl_seconds: int
    created_at: str
    updated_at: str
    expires_at: str | None = None
    remaining_seconds: int | None = None
    transport: TransportName | None = Field(default=None, description="How the directories travel, once agreed on")
    room_id: str | None = Field(default=None, description="Where both sides talk about it, once the peer has accepted")
    result: ResultView | None = None
    error: ErrorView | None = None
    hidden: list[str] = Field(default=[], description="Names in the workspace that the executor could not see")
    unmountable: list[str] = Field(default=[], description="Links and nested mounts that do not go with it")
    cautions: list[str] = Field(
        default=[], description="What the mount can't carry of what the work met, and what helps"
    )
    requested_ttl_seconds: int = Field(default=0, description="More than ttl_seconds where policy or peer narrowed it")
    sandbox_enforced: list[str] = Field(default=[], description="What the executor says it enforces for its agent")
    sandbox_profile: SandboxView | None = Field(
        default=None, description="What the executor says its agent may do; None where it has said nothing (yet)"
    )
    left_out: int = Field(default=0, description="Names that include and exclude kept from going with it")
    terms: list[str] = Field(default=[], description="What it may do less than access_mode says, in words")
    settled: bool = Field(default=False, description="Whether it is over, access is cut, and the audit is made")
    undo: Literal["possible", "done"] | None = Field(
        default=None, description="Whether `undo` can take back what it wrote into the directory, or has done so"
    )
    revealed: list[str] = Field(default=[], description="Patterns of hidden names that were shown after all")
    unlocked: list[str] = Field(default=[], description="Patterns of names that tools execute, writable after all")
    git: GitMode = "hidden"
    git_hidden: list[str] = Field(default=[], description="Where .git stayed hidden although it was asked for, and why")
    left_behind: list[str] = Field(
        default=[],
        description="What came back and was not written, since it was refused or changed here as well meanwhile, "
        "and locks and drafts of the agent's git in a repository that could not be removed",
    )
    audit: AuditReport | None = None
    audit_error: ErrorView | None = Field(default=None, description="Why there is no audit although access was given")
    usage: LeaseUsageView = LeaseUsageView()
    quota: LeaseQuota | None = Field(default=None, description="None where nothing may be added")
    follow_ups: list[FollowUpView] = Field(default=[], description="What was said while the work ran")
    cursor: int = Field(default=0, description="Sequence number of its newest event")

    def brief(self) -> DelegationView:
        """Return the view for a list of delegations: its audit is ``AuditReport.brief``."""
        return self if self.audit is None else self.model_copy(update={"audit": self.audit.brief()})
