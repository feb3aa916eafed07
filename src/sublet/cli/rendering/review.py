"""What people see of staged results: what they would change, what stands in the way, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sublet.cli.rendering.columns import inset
from sublet.cli.rendering.lent import directory_counts, directory_lines, mode_change
from sublet.cli.rendering.words import MAX_FILES_SHOWN, count, whole_line
from sublet.protocol.text import clean_line, clean_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sublet.cli.rendering.screen import Symbols
    from sublet.daemon.api.delegation_views import ChangeSet, DelegationView
    from sublet.daemon.api.results import Applied, Conflict, Review, ReviewedDirectory, ReviewedFile, Undone

_STYLE = {"added": "green", "changed": "yellow", "deleted": "red", "renamed": "yellow", "mode": "yellow"}
_OUTCOME = {
    "merged": "merges with your changes",
    "conflict": "conflict",
    "present": "is like that already",
    "stays": "stays, since it holds something else",
}
_LEFT_OUT_SHOWN = 3
"""Changes that a branch does not hold, in the line that tells of a result."""

_MEANING = {
    "pending": "not applied yet",
    "applied": "applied",
    "partly_applied": "applied in part",
    "discarded": "dropped",
    "undone": "applied and taken back",
}


def staged(changes: ChangeSet, symbols: Symbols, label: str = "staged result") -> Text:
    """Return the counts of a staged result, or of what a copy brought back, and where it stands, in one line."""
    line = Text.assemble((f"{label}  ", "bold"), _MEANING[changes.status])
    line.append(f" {symbols.dot} {_counts(changes, symbols)}", style="dim")
    if changes.branch is not None:
        line.append(f" {symbols.dot} on branch {whole_line(changes.branch)}", style="green")
    if changes.branch_left_out:
        left_out = "; ".join(whole_line(line) for line in changes.branch_left_out[:_LEFT_OUT_SHOWN])
        more = ", and more" if len(changes.branch_left_out) > _LEFT_OUT_SHOWN else ""
        line.append(f" {symbols.dot} not on it: {left_out}{more}", style="yellow")
    if changes.branch_error is not None:
        line.append(f" {symbols.dot} on no branch: {whole_line(changes.branch_error)}", style="yellow")
    return line


def review_steps(view: DelegationView) -> list[str]:
    """Return what to type where a staged result waits to be looked at, nothing where none does."""
    changes = view.result.change_set if view.result is not None else None
    if changes is None or changes.status != "pending":
        return []
    if changes.is_empty:
        return [f"Drop it:  sublet discard {view.delegation_id}"]
    if changes.branch is not None:
        rest = [f"Take the rest:  sublet apply {view.delegation_id}"] if changes.branch_left_out else []
        return [
            f"Take it:  git merge {whole_line(changes.branch)}",
            *rest,
            f"Drop it:  sublet discard {view.delegation_id}   (the branch stays)",
        ]
    return [
        f"Look at it:  sublet review {view.delegation_id}",
        f"Apply it:    sublet apply {view.delegation_id}",
        f"Drop it:     sublet discard {view.delegation_id}",
    ]


def reviewed(report: Review, symbols: Symbols) -> RenderableType:
    """Return every file with what applying it would come to, and the counts."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    for file in report.files[:MAX_FILES_SHOWN]:
        outcome = _OUTCOME.get(file.outcome or "", "")
        table.add_row(
            Text(file.change, style=_STYLE[file.change]),
            _name(file),
            _lines(file, symbols),
            Text(outcome, style="red" if file.outcome == "conflict" else "dim"),
        )
    parts: list[RenderableType] = [table] if report.files else []
    if (left := len(report.files) - MAX_FILES_SHOWN) > 0:
        parts.append(Text(f"and {left} more", style="dim"))
    parts += [_directory(one) for one in report.directories[:MAX_FILES_SHOWN]]
    if (left := report.change_set.directories - MAX_FILES_SHOWN) > 0:
        parts.append(Text(f"and {left} more directories", style="dim"))
    if report.truncated:
        parts.append(Text("the list was cut: there are more changes than it can hold", style="yellow"))
    parts.append(staged(report.change_set, symbols))
    return Group(*parts)


def obstacles(report: Review, symbols: Symbols) -> list[RenderableType]:
    """Return what stands in the way of applying, nothing where nothing does."""
    if report.change_set.status not in ("pending", "undone"):
        return []
    parts: list[RenderableType] = []
    if report.conflicts:
        parts.append(_conflicts(report.conflicts, symbols))
    if report.mass_deletion:
        parts.append(
            Text("it would delete most of the directory, which apply refuses without --allow-mass-deletion", "yellow")
        )
    if report.unread:
        lines = report.unread_why or report.unread
        names = ", ".join(clean_name(line) for line in lines[:MAX_FILES_SHOWN])
        parts.append(Text(f"could not be read, so is not part of it: {names}", style="yellow"))
        if (left := max(report.unread_count, len(lines)) - MAX_FILES_SHOWN) > 0:
            parts.append(Text(f"and {left:,} more that could not be read", style="yellow"))
    return parts


def not_carried(left_out: Sequence[str]) -> list[RenderableType]:
    """Return what a branch or a patch does not hold of a result, nothing where it holds all."""
    if not left_out:
        return []
    lines: list[RenderableType] = [Text("git can't carry these; `sublet apply` does:", style="yellow")]
    lines += [Text(f"  {clean_name(line)}") for line in left_out[:MAX_FILES_SHOWN]]
    if (left := len(left_out) - MAX_FILES_SHOWN) > 0:
        lines.append(Text(f"  and {left} more", style="dim"))
    return lines


def applied(report: Applied, symbols: Symbols) -> RenderableType:
    """Return what became of a result."""
    if report.branch is not None:
        left_out = [whole_line(line) for line in report.change_set.branch_left_out]
        rest = f"\nnot on it, and waiting for `sublet apply {report.delegation_id}`:\n  " if left_out else ""
        line = Text.assemble(
            (f"{symbols.good} branch {whole_line(report.branch)}", "bold green"),
            f"  at {clean_line((report.commit or '')[:12])}; your files are as they were",
            (rest + "\n  ".join(left_out), "yellow"),
        )
        return Group(line, *not_carried(report.left_out)) if report.left_out else line
    parts: list[RenderableType] = []
    if report.applied:
        parts.append(Text(f"{symbols.good} applied {count(len(report.applied), 'change')}", style="bold green"))
        parts.append(_listed(report.applied))
    elif report.conflicts:
        parts.append(Text(f"{symbols.bad} nothing was applied", style="bold red"))
    else:
        parts.append(Text(f"{symbols.good} your directory holds all of it already", style="bold green"))
    if report.conflicts:
        parts.append(_conflicts(report.conflicts, symbols))
    return Group(*parts)


def undone(report: Undone, symbols: Symbols) -> RenderableType:
    """Return what was taken back."""
    sign, style = (symbols.bad, "bold yellow") if report.conflicts else (symbols.good, "bold green")
    if not report.undone and not report.conflicts:
        return Text(f"{sign} there was nothing to take back", style=style)
    parts: list[RenderableType] = [Text(f"{sign} took back {count(len(report.undone), 'change')}", style=style)]
    if report.undone:
        parts.append(_listed(report.undone))
    if report.conflicts:
        parts.append(_conflicts(report.conflicts, symbols))
    return Group(*parts)


def _conflicts(conflicts: Sequence[Conflict], symbols: Symbols) -> RenderableType:
    lines: list[RenderableType] = [Text(count(len(conflicts), "conflict"), style="bold red")]
    for conflict in conflicts[:MAX_FILES_SHOWN]:
        lines.append(Text.assemble(f"  {clean_name(conflict.path)}", (f"  {whole_line(conflict.reason)}", "dim")))
        for whose, where in (("yours ", conflict.yours), ("theirs", conflict.theirs)):
            shown = clean_name(where) if where is not None else "(none)"
            lines.append(Text.assemble((f"    {whose} {symbols.dot} ", "dim"), shown, overflow="fold"))
    if (left := len(conflicts) - MAX_FILES_SHOWN) > 0:
        lines.append(Text(f"  and {left} more", style="dim"))
    return Group(*lines)


def _listed(names: Sequence[str]) -> RenderableType:
    lines = [Text(clean_name(name)) for name in names[:MAX_FILES_SHOWN]]
    if (left := len(names) - MAX_FILES_SHOWN) > 0:
        lines.append(Text(f"and {left} more", style="dim"))
    return inset(Group(*lines), 2)


def _counts(changes: ChangeSet, symbols: Symbols) -> str:
    kinds = (
        (changes.added, "added"),
        (changes.changed, "changed"),
        (changes.renamed, "renamed"),
        (changes.deleted, "deleted"),
        (changes.mode_changed, "with another mode"),
    )
    facts = [f"{number} {kind}" for number, kind in kinds if number]
    if directories := directory_counts(
        changes.directories_added, changes.directories_deleted, changes.directories_mode_changed
    ):
        facts.append(directories)
    if not facts:
        return "changes nothing"
    if changes.lines_added or changes.lines_deleted:
        return f"{', '.join(facts)} {symbols.dot} +{changes.lines_added} {symbols.minus}{changes.lines_deleted} lines"
    return ", ".join(facts)


def _name(file: ReviewedFile) -> Text:
    if file.renamed_from is not None:
        return Text(f"{clean_name(file.renamed_from)} to {clean_name(file.path)}")
    name = Text(clean_name(file.path))
    name.append(mode_change(file.mode_before, file.mode_after), style="dim")
    return name


def _directory(directory: ReviewedDirectory) -> Text:
    [line] = directory_lines([directory], 1)
    outcome = _OUTCOME.get(directory.outcome or "", "")
    line.append(f"  {outcome}" if outcome else "", style="red" if directory.outcome == "conflict" else "dim")
    return line


def _lines(file: ReviewedFile, symbols: Symbols) -> Text:
    if file.lines_added is None or file.lines_deleted is None:
        return Text("" if file.change in ("mode", "renamed") else "binary", style="dim")
    parts = [(f"+{file.lines_added}", "green")] if file.lines_added else []
    if file.lines_deleted:
        parts.append((f"{symbols.minus}{file.lines_deleted}", "red"))
    return Text(" ").join(Text(text, style=style) for text, style in parts)
