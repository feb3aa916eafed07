"""Operations on what is over: what is kept of it, and what is forgotten (AWCP 6.6 ``prune_resources``)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.delegation_fields import Bound
from sublet.daemon.api.operation import Asks, Operation
from sublet.policy.decision import Action


class PruneRequest(Request):
    """What to forget. With neither age nor size, everything that is over."""

    older_than_seconds: Annotated[int, Field(ge=0)] | None = Field(default=None, description="What ended longer ago")
    max_bytes: Bound | None = Field(default=None, description="The oldest go until the rest takes no more")
    pending: bool = Field(default=False, description="Also results that wait to be reviewed")
    dry_run: bool = Field(default=False, description="Only tell what would go")


class PruneItem(View):
    """One thing that went, or would go: a kind such as ``delegations``, since when it is over, its size, and why."""

    kind: str
    id: str
    what: str
    ended_at: str
    bytes: int
    reason: str


class PruneReport(View):
    """What ``prune_resources`` removed; of a dry run, what it would remove."""

    dry_run: bool = False
    counts: dict[str, int] = Field(default={}, description="How many of each kind")
    events: int = 0
    bytes: int = 0
    items: list[PruneItem] = Field(default=[])
    truncated: bool = Field(default=False, description="Whether there is more than items lists")
    store_bytes_before: int = Field(
        default=0, description="Of the database on the disk; none where nothing was removed"
    )
    store_bytes_after: int = Field(default=0, description="The same once the room of what went was given back")


PRUNE = Operation(
    "resources.prune",
    "POST",
    "/v1/prune",
    PruneRequest,
    PruneReport,
    asks=Asks(Action.RESOURCES_PRUNE),
    summary="Remove what ended delegations left behind, as far as the request says.",
)
