"""How much a staged result changes, and what became of it: stated once, for who counts and for who shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ChangeSetStatus: TypeAlias = Literal["pending", "applied", "partly_applied", "discarded", "undone"]


@dataclass
class ChangeCounts:
    """How much a change set changes. ``added`` and ``deleted`` leave out the two sides of a rename.

    What is not named after directories counts files and links. It has no slots and is not frozen, so that
    a view may have these fields.
    """

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

    @property
    def files(self) -> int:
        """The number of changed files and links."""
        return self.added + self.changed + self.deleted + self.renamed + self.mode_changed

    @property
    def directories(self) -> int:
        """The number of directories that it makes, removes, or gives another mode."""
        return self.directories_added + self.directories_deleted + self.directories_mode_changed
