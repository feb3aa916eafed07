"""Fields that requests about delegations have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import MAX_PAGE, Request

Pattern = Annotated[str, Field(min_length=1, max_length=1024)]
BranchName = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+@=-]*$")]
Bound = Annotated[int, Field(ge=0, le=1 << 50)]

DELEGATION = "/v1/delegations/{delegation_id}"
"""Where a delegation is on the control socket."""


class OneDelegation(Request):
    """Names the delegation that an operation is about."""

    delegation_id: str


class OneWithPatch(OneDelegation):
    """A delegation, and whether the patch is wanted as well."""

    patch: bool = False


class ListNewest(Request):
    """How many to list, the newest first, and whether only those that are not over."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    active: bool = False
    before: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Only those that are older than the one with this id"
    )
