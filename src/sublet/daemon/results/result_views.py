"""How a result is shown for review: its files, directories and conflicts under the names that its reader knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sublet.daemon.api.reports import mode_text
from sublet.daemon.api.results import (
    Conflict,
    DirectoryOutcome,
    Outcome,
    ReviewedDirectory,
    ReviewedFile,
)
from sublet.protocol.text import clean_name
from sublet.workspace.export import ViewRules
from sublet.workspace.staging import staged_result as workspace_changes


@dataclass(frozen=True, slots=True)
class ResultPart:
    """One staged directory of a delegation; ``shown`` leads the names of its files."""

    name: str
    key: str
    root: Path
    rules: ViewRules
    shown: str

    def name_of(self, path: bytes) -> str:
        """Return the name of a file as it is shown."""
        return self.shown + clean_name(path)


def names_told(
    parts: Mapping[str, ResultPart], reports: Mapping[str, workspace_changes.Applied]
) -> tuple[list[str], list[Conflict]]:
    """Return what was changed, and what was not, as it is shown."""
    changed = [
        name
        for key, report in reports.items()
        for name in (
            *map(parts[key].name_of, report.paths),
            *(parts[key].name_of(path) + "/" for path in report.directories),
        )
    ]
    conflicts = [conflict for key, report in reports.items() for conflict in conflicts_of(parts[key], report.conflicts)]
    return changed, conflicts


def outcomes_of(preview: workspace_changes.Preview) -> dict[bytes, Outcome]:
    """Return what would become of each path of a preview."""
    outcomes: dict[bytes, Outcome] = {}
    outcomes |= dict.fromkeys(preview.clean, "clean")
    outcomes |= dict.fromkeys(preview.present, "present")
    outcomes |= dict.fromkeys(preview.merged, "merged")
    outcomes |= {conflict.path: "conflict" for conflict in preview.conflicts}
    return outcomes


def conflicts_of(part: ResultPart, conflicts: tuple[workspace_changes.Conflict, ...]) -> list[Conflict]:
    """Return conflicts with where the two versions lie."""
    return [
        Conflict(
            path=part.name_of(conflict.path),
            reason=conflict.detail,
            yours=None if conflict.kind == "deleted_here" else _place(part, conflict.path),
            theirs=_place(part, conflict.kept_as)
            if conflict.kept_as is not None
            else clean_name(str(conflict.theirs))
            if conflict.theirs is not None
            else None,
        )
        for conflict in conflicts
    ]


def _place(part: ResultPart, path: bytes) -> str:
    return clean_name(bytes(part.root) + b"/" + path)


def reviewed_file(part: ResultPart, file: workspace_changes.ChangedPath, outcome: Outcome | None) -> ReviewedFile:
    """Return a changed file as it is shown, with what would become of it where that was looked at."""
    return ReviewedFile(
        path=part.name_of(file.path),
        change=file.change,
        renamed_from=None if file.renamed_from is None else part.name_of(file.renamed_from),
        lines_added=file.lines_added,
        lines_deleted=file.lines_deleted,
        outcome=outcome,
        mode_before=mode_text(file.mode_before),
        mode_after=mode_text(file.mode_after),
    )


def reviewed_directory(
    part: ResultPart, directory: workspace_changes.DirectoryChange, outcome: DirectoryOutcome | None
) -> ReviewedDirectory:
    """Return a changed directory likewise."""
    return ReviewedDirectory(
        path=part.shown + directory.shown,
        change=directory.change,
        mode_before=mode_text(directory.before),
        mode_after=mode_text(directory.after),
        outcome=outcome,
    )
