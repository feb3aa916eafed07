"""Operations on results: those kept apart until somebody has looked at them, and what a lease wrote (DESIGN 4.7)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from sublet.daemon.api.audit_models import DirectoryChange
from sublet.daemon.api.base import View
from sublet.daemon.api.delegation_fields import DELEGATION, BranchName, OneDelegation, OneWithPatch
from sublet.daemon.api.delegation_views import ChangeSet
from sublet.daemon.api.operation import Asks, AsksInside, Operation
from sublet.policy.decision import Action
from sublet.protocol.idle_fields import refuse_idle

Outcome = Literal["clean", "merged", "conflict", "present"]
DirectoryOutcome = Literal["clean", "merged", "conflict", "present", "stays"]


class ApplyResult(OneDelegation):
    """How a staged result is to be applied. By default all of it is, or nothing."""

    partial: bool = Field(default=False, description="With conflicts, apply what has none")
    allow_mass_deletion: bool = Field(default=False, description="Also where most of the directory would go")
    branch: BranchName | None = Field(
        default=None, description="Make a new git branch of the result instead, and leave the files as they are"
    )

    @model_validator(mode="after")
    def _all_say_something(self) -> Self:
        if self.branch is not None:
            refuse_idle(self, "can't go with a branch, which has all of it", "partial", "allow_mass_deletion")
        return self


class Conflict(View):
    """One path that two sides changed, or that can't be written; names are cleaned for display.

    ``yours`` and ``theirs`` say where the two versions lie; None where that side has none.
    """

    path: str
    reason: str
    yours: str | None = None
    theirs: str | None = None


class ReviewedFile(View):
    """One file of a staged result, and what applying it now would come to.

    ``outcome``: ``clean`` nobody else changed it, ``merged`` both sides changed it apart from each other, ``conflict``
    it needs a person, ``present`` the directory holds it already. None where the directory could not be compared.
    """

    path: str
    change: Literal["added", "changed", "deleted", "renamed", "mode"]
    renamed_from: str | None = None
    lines_added: int | None = None
    lines_deleted: int | None = None
    outcome: Outcome | None = None
    mode_before: str | None = None
    mode_after: str | None = None


class ReviewedDirectory(DirectoryChange):
    """One directory of a staged result, and what applying it now would come to.

    ``outcome``: as of a file; ``stays`` where the executor removed it and it holds what the executor never saw.
    """

    outcome: DirectoryOutcome | None = None


class Review(View):
    """A staged result as it is looked at before it is applied."""

    delegation_id: str
    workspace_dir: str
    change_set: ChangeSet
    files: list[ReviewedFile] = Field(default=[])
    directories: list[ReviewedDirectory] = Field(default=[])
    truncated: bool = False
    conflicts: list[Conflict] = Field(default=[], description="What would not apply to the directory as it is now")
    mass_deletion: bool = Field(default=False, description="Whether it is refused unless that is allowed")
    unread: list[str] = Field(default=[], description="Could not be read in the result, so is not part of it")
    unread_why: list[str] = Field(default=[], description="The same names, each with the reason")
    unread_count: int = Field(default=0, description="How many those are, also where the list is cut")
    patch: str | None = Field(default=None, description="Only where asked for")
    patch_truncated: bool = False


class ResultPatch(View):
    """The whole patch, as ``git apply`` takes it."""

    delegation_id: str
    base64: str
    left_out: list[str] = Field(default=[], description="Directories and permissions, which such a patch can't carry")


class Applied(View):
    """What became of a staged result."""

    delegation_id: str
    applied: list[str] = Field(
        default=[], description="Names that were changed in the directory; directories end with a slash"
    )
    conflicts: list[Conflict] = Field(default=[])
    change_set: ChangeSet
    undo: str | None = Field(default=None, description="By which `undo` takes it back")
    branch: str | None = None
    commit: str | None = None
    left_out: list[str] = Field(default=[], description="Directories and permissions, which a branch can't carry")


class Discarded(View):
    """A staged result that is gone."""

    delegation_id: str
    discarded: Literal[True] = True
    change_set: ChangeSet


class Undone(View):
    """What was taken back of an applied result."""

    delegation_id: str
    undone: list[str] = Field(default=[], description="Names that are as they were before")
    conflicts: list[Conflict] = Field(default=[], description="Changed since, so left as they are")
    change_set: ChangeSet


_WRITES = "the directories that it writes into are known by its record alone"

REVIEW_RESULT = Operation(
    "results.review",
    "GET",
    f"{DELEGATION}/review",
    OneWithPatch,
    Review,
    asks=Asks(Action.DELEGATION_REVIEW, "{delegation_id}"),
    summary="Return what a staged result would change, with its conflicts as of now and the patch where asked for.",
)
EXPORT_RESULT = Operation(
    "results.patch",
    "GET",
    f"{DELEGATION}/patch",
    OneDelegation,
    ResultPatch,
    asks=Asks(Action.DELEGATION_REVIEW, "{delegation_id}"),
    summary="Return the whole of a staged result as a patch.",
)
APPLY_RESULT = Operation(
    "results.apply",
    "POST",
    f"{DELEGATION}/apply",
    ApplyResult,
    Applied,
    asks=AsksInside(_WRITES, (Action.DELEGATION_APPLY, Action.WORKSPACE_LEND)),
    summary="Merge a staged result into the directory; with conflicts nothing is applied, unless a part is asked for.",
)
DISCARD_RESULT = Operation(
    "results.discard",
    "POST",
    f"{DELEGATION}/discard",
    OneDelegation,
    Discarded,
    asks=Asks(Action.DELEGATION_DISCARD, "{delegation_id}"),
    summary="Drop a staged result.",
)
UNDO_RESULT = Operation(
    "results.undo",
    "POST",
    f"{DELEGATION}/undo",
    OneDelegation,
    Undone,
    asks=AsksInside(_WRITES, (Action.DELEGATION_UNDO, Action.WORKSPACE_LEND)),
    summary="Take back what was applied of a staged result, or what a live lease wrote.",
)
