"""Operations on assignments: work that is or was done here for peers (AWCP 6)."""

from __future__ import annotations

from pydantic import Field

from sublet.daemon.api.base import View
from sublet.daemon.api.delegation_fields import ListNewest, OneDelegation
from sublet.daemon.api.delegation_views import ErrorView
from sublet.daemon.api.operation import Asks, Hides, Operation
from sublet.policy.decision import Action
from sublet.protocol.bounds import AccessMode
from sublet.protocol.lifecycle import AssignmentState


class AssignmentView(View):
    """Work that was or is done here for a peer."""

    delegation_id: str
    state: AssignmentState
    peer: str
    agent: str
    description: str
    access_mode: AccessMode
    created_at: str
    updated_at: str
    expires_at: str | None = None
    remaining_seconds: int | None = None
    outcome: str | None = Field(default=None, description="done, failed, timeout, limit, cancelled or crashed")
    exit_code: int | None = None
    error: ErrorView | None = None


LIST_ASSIGNMENTS = Operation(
    "assignments.list",
    "GET",
    "/v1/assignments",
    ListNewest,
    list[AssignmentView],
    asks=Asks(Action.ASSIGNMENT_READ),
    summary="Return what is or was done here for peers, the newest first.",
    hides=Hides(Action.ASSIGNMENT_READ, "delegation_id"),
)
ASSIGNMENT = "/v1/assignments/{delegation_id}"
GET_ASSIGNMENT = Operation(
    "assignments.get",
    "GET",
    ASSIGNMENT,
    OneDelegation,
    AssignmentView,
    asks=Asks(Action.ASSIGNMENT_READ, "{delegation_id}"),
    summary="Return one piece of work for a peer as it is now; what it prints is told by events.",
)
CANCEL_ASSIGNMENT = Operation(
    "assignments.cancel",
    "POST",
    f"{ASSIGNMENT}/cancel",
    OneDelegation,
    AssignmentView,
    asks=Asks(Action.ASSIGNMENT_CANCEL, "{delegation_id}"),
    summary="Stop work that is done here for a peer, and tell the peer. Cancelling twice is no error.",
)
