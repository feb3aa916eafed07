"""The account of what a lease did to the directory, as every face shows it (DESIGN 4.8)."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from sublet.daemon.api.base import View


class FileChange(View):
    """One changed file: its name cleaned for display, line counts (None for binary), who did it."""

    path: str
    change: Literal["added", "changed", "deleted", "mode"]
    lines_added: int | None = None
    lines_deleted: int | None = None
    by: Literal["executor", "other"] = "executor"
    mode_before: str | None = Field(default=None, description="Permissions in octal, where they are known")
    mode_after: str | None = None


class DirectoryChange(View):
    """One directory that was made, removed, or got other permissions: its name cleaned for display, with a slash."""

    path: str
    change: Literal["added", "deleted", "mode"]
    by: Literal["executor", "other"] = "executor"
    mode_before: str | None = Field(default=None, description="Permissions in octal, None where there was none")
    mode_after: str | None = None


class RefChange(View):
    """A reference of the lent repository that was made, moved or deleted: what it held before, and what now."""

    name: str
    old: str | None = None
    new: str | None = None


class OthersEdit(View):
    """A file that somebody else edited during the lease, too: its name cleaned for display, and where that is kept.

    ``kept`` is None where the lease did not overwrite the edit, so that it is in the directory, or it was not kept.
    """

    path: str
    kept: str | None = None
    overwritten: bool = True

    @property
    def where(self) -> str:
        """In a few words what became of the edit."""
        if not self.overwritten:
            return "that edit is in the directory"
        return f"overwritten; kept as {self.kept}" if self.kept is not None else "overwritten, and not kept"


MAX_BRIEF_NAMES: Final = 20
"""Of each kind, in a list of delegations, of which each may have changed ten thousand files."""
_NAMED: Final = ("added", "changed", "deleted", "mode_changed", "by_others", "files", "directories")
"""Lists of a report that are counted besides, or that nobody looks at in a list of delegations."""


class AuditReport(View):
    """What happened to the directory between baseline and result (DESIGN 4.8)."""

    added: list[str] = Field(default=[])
    changed: list[str] = Field(default=[])
    deleted: list[str] = Field(default=[])
    mode_changed: list[str] = Field(default=[])
    counts: dict[Literal["added", "changed", "deleted", "mode"], int] = Field(
        default={}, description="How many files changed in each way, also where the lists are cut"
    )
    by_others: list[str] = Field(default=[], description="Changed during the lease, but not through it")
    others_edits: list[OthersEdit] = Field(
        default=[], description="Written by the lease and edited by somebody else as well; what was overwritten is kept"
    )
    not_kept: list[str] = Field(
        default=[], description="Overwritten without a copy, for want of room: can't be taken back"
    )
    files: list[FileChange] = Field(default=[])
    directories: list[DirectoryChange] = Field(default=[])
    directory_counts: dict[Literal["added", "deleted", "mode"], int] = Field(
        default={}, description="How many directories changed in each way, also where the list is cut"
    )
    refs: list[RefChange] = Field(default=[], description="Where the repository was lent for writing")
    refs_bring: list[str] = Field(
        default=[],
        description="Hidden or locked names in commits that references were moved to: a checkout would write them; "
        "* where that could not be told",
    )
    index_marks: list[str] = Field(
        default=[],
        description="Files of which an index from the lease had git not see changes (assume-unchanged, skip-worktree); "
        "the marks were taken off",
    )
    unaudited: list[str] = Field(default=[], description="Could not be read, so may have changed unseen")
    unaudited_why: list[str] = Field(default=[], description="The same names, each with the reason")
    unaudited_count: int = Field(default=0, description="How many those are, also where the list is cut")
    lines_added: int = 0
    lines_deleted: int = 0
    truncated: bool = False
    patch_truncated: bool = False
    patch: str | None = Field(default=None, description="Only where asked for")

    @property
    def unseen(self) -> int:
        """How many paths could not be read; reports of the first version have the names alone."""
        return max(self.unaudited_count, len(self.unaudited))

    @property
    def unseen_lines(self) -> list[str]:
        """The paths that could not be read, with the reason where it is known."""
        return self.unaudited_why or self.unaudited

    def brief(self) -> AuditReport:
        """Return the report for a list of delegations: all counts, and ``MAX_BRIEF_NAMES`` names of each kind."""
        names = {name: getattr(self, name) for name in _NAMED}
        kept = {name: listed[:MAX_BRIEF_NAMES] for name, listed in names.items()}
        return self.model_copy(update={**kept, "truncated": self.truncated or kept != names})

    @property
    def is_empty(self) -> bool:
        """Whether no file and no directory was changed, as far as could be looked at."""
        listed = self.files or self.directories or self.added or self.changed or self.deleted or self.mode_changed
        return not listed and not sum(self.counts.values()) + sum(self.directory_counts.values())
