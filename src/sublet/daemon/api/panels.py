"""Operations on panels: one task for several agents at once, of whose results one is taken."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sublet.daemon.api.base import MAX_WAIT_SECONDS, Request, View
from sublet.daemon.api.delegation_views import ChangeSet, ErrorView
from sublet.daemon.api.delegations import LeaseOptions
from sublet.daemon.api.operation import AsksInside, Operation
from sublet.daemon.api.results import Applied
from sublet.policy.decision import Action
from sublet.protocol.bounds import MAX_PROMPT_CHARS, MAX_TTL_SECONDS
from sublet.protocol.idle_fields import refuse_idle
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.panels import (
    DEFAULT_CHECK_SECONDS,
    MAX_CHECK_CHARS,
    MAX_CHECK_SECONDS,
    MAX_MEMBERS,
    MIN_MEMBERS,
    MemberState,
    StopRule,
)

PANEL_PATH = "/v1/panels/{panel_id}"
MAX_TO_CHARS = 2_000


class CreatePanel(LeaseOptions):
    """Give one task to several agents at once.

    Args:
        workspace_dir: absolute path of the directory; each member works in a copy of one snapshot of it.
        to: ``capability:NAME``, for the best free agents of as many nodes as there are; or agents, separated by commas.
        members: how many agents.
        prompt: what is to be done.
        check: a shell command that is run on each result, in the sandbox, without network.
        check_seconds: how long that may take, for each.
        stop: whether all are waited for, or the others are stopped once a result has passed the check.
        max_agent_seconds: how long the members may work, all times added up.
    """

    workspace_dir: str = Field(description="Absolute path of the directory to lend, on this machine")
    to: Annotated[str, Field(min_length=1, max_length=MAX_TO_CHARS)]
    members: Annotated[int, Field(ge=MIN_MEMBERS, le=MAX_MEMBERS)]
    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
    result_mode: Literal["staged"] = "staged"
    check: Annotated[str, Field(min_length=1, max_length=MAX_CHECK_CHARS)] | None = None
    check_seconds: Annotated[int, Field(ge=1, le=MAX_CHECK_SECONDS)] = DEFAULT_CHECK_SECONDS
    stop: StopRule = "all"
    max_agent_seconds: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)] | None = None

    @model_validator(mode="after")
    def _all_say_something(self) -> Self:
        refuse_idle(self, "can't go with a panel, which lends one directory", "resources")
        if self.check is None:
            refuse_idle(self, "can't go without check", "check_seconds", "stop")
        return self


class OnePanel(Request):
    """Names the panel that an operation is about."""

    panel_id: str


class WaitForPanel(OnePanel):
    """A panel, and how many seconds to wait for its end."""

    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0


class ApplyMember(OnePanel):
    """Which member's result is to be applied; the others are discarded."""

    member: Annotated[int, Field(ge=1, le=MAX_MEMBERS)]
    partial: bool = Field(default=False, description="With conflicts, apply what has none")
    allow_mass_deletion: bool = Field(default=False, description="Also where most of the directory would go")


class MemberView(View):
    """A member of a panel.

    ``state``: ``ready`` it has a result that was not checked, or will be; ``none`` it ended without one.
    """

    member: int = Field(description="Its number, from 1")
    delegation_id: str
    address: str
    peer: str
    agent: str
    why: str = Field(description="Why this one")
    state: MemberState
    delegation_state: DelegationState | None = Field(default=None, description="None where the delegation is gone")
    seconds: float = Field(default=0, description="How long it has worked")
    exit_code: int | None = Field(default=None, description="Of the check; None where it has none")
    check_reason: str = Field(default="", description="Why the check has no exit code")
    check_output: str = Field(default="", description="The end of what the check printed")
    summary: str = Field(default="", description="What the agent says at the end")
    change_set: ChangeSet | None = None
    error: ErrorView | None = None


class PanelView(View):
    """A panel and how it stands."""

    panel_id: str
    state: Literal["running", "over"]
    workspace_dir: str
    description: str
    to: str
    check: str | None = None
    check_seconds: int
    stop: StopRule
    max_agent_seconds: int | None = None
    agent_seconds: float = Field(description="How long the members have worked, all times added up")
    created_at: str
    members: list[MemberView]


class PanelChange(View):
    """What one member did to a file."""

    member: int
    change: Literal["added", "changed", "deleted", "renamed", "mode"]
    lines_added: int | None = None
    lines_deleted: int | None = None
    conflict: bool = Field(default=False, description="It would not apply to the directory as it is now")


class PanelFile(View):
    """One file, and what the members did to it side by side."""

    path: str
    changes: list[PanelChange]


class PanelReview(View):
    """The results of a panel side by side."""

    panel: PanelView
    files: list[PanelFile] = Field(default=[])
    truncated: bool = Field(default=False, description="There are more files than are listed")
    unread: list[str] = Field(default=[], description="Members whose result can't be compared now, and why")


class PanelApplied(View):
    """What became of a panel: one result is applied, the others are gone."""

    panel_id: str
    member: int
    applied: Applied
    discarded: list[str] = Field(default=[], description="Delegations whose results were dropped")
    kept: list[str] = Field(default=[], description="Those that could not be dropped, and why")


class PanelDiscarded(View):
    """The results of a panel that are gone."""

    panel_id: str
    discarded: list[str] = Field(default=[])
    kept: list[str] = Field(default=[], description="Those that could not be dropped, and why")


_EACH = "the delegation of each member is asked for"

CREATE_PANEL = Operation(
    "panels.create",
    "POST",
    "/v1/panels",
    CreatePanel,
    PanelView,
    asks=AsksInside(
        "each member, the directory by its real path, and each hidden name are asked for",
        (Action.DELEGATION_CREATE, Action.WORKSPACE_LEND, Action.WORKSPACE_REVEAL, Action.WORKSPACE_UNLOCK),
    ),
    summary="Give one task to several agents at once and return the panel's handle; it goes on in the background.",
    status=201,
)
GET_PANEL = Operation(
    "panels.get",
    "GET",
    PANEL_PATH,
    OnePanel,
    PanelView,
    asks=AsksInside(_EACH, (Action.DELEGATION_READ,)),
    summary="Return a panel as it is now.",
)
WAIT_FOR_PANEL = Operation(
    "panels.wait",
    "GET",
    f"{PANEL_PATH}/wait",
    WaitForPanel,
    PanelView,
    asks=AsksInside(_EACH, (Action.DELEGATION_READ,)),
    summary="Wait for the end of a panel as long as the request says, then return it as it is.",
)
REVIEW_PANEL = Operation(
    "panels.review",
    "GET",
    f"{PANEL_PATH}/review",
    OnePanel,
    PanelReview,
    asks=AsksInside(_EACH, (Action.DELEGATION_REVIEW,)),
    summary="Return the results of a panel side by side, file by file.",
)
CANCEL_PANEL = Operation(
    "panels.cancel",
    "POST",
    f"{PANEL_PATH}/cancel",
    OnePanel,
    PanelView,
    asks=AsksInside(_EACH, (Action.DELEGATION_CANCEL,)),
    summary="Stop all members that work, and checks under way. Results that are there stay.",
)
APPLY_MEMBER = Operation(
    "panels.apply",
    "POST",
    f"{PANEL_PATH}/apply",
    ApplyMember,
    PanelApplied,
    asks=AsksInside(
        "the directory that it writes into is known by its record alone",
        (Action.DELEGATION_APPLY, Action.DELEGATION_DISCARD, Action.WORKSPACE_LEND),
    ),
    summary="Merge the result of one member into the directory, and drop those of the others.",
)
DISCARD_PANEL = Operation(
    "panels.discard",
    "POST",
    f"{PANEL_PATH}/discard",
    OnePanel,
    PanelDiscarded,
    asks=AsksInside(_EACH, (Action.DELEGATION_DISCARD,)),
    summary="Drop all results of a panel.",
)
