"""What people see of what a delegation lends: its directories, what stays here, and what was opened on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from sublet.cli.rendering.words import whole_line
from sublet.protocol.text import clean_name

if TYPE_CHECKING:
    from sublet.daemon.api.audit_models import AuditReport, DirectoryChange
    from sublet.daemon.api.delegation_views import DelegationView, SandboxView

MAX_NAMES_SHOWN = 8
MAX_REFS_SHOWN = 20
MAX_DIRECTORIES_SHOWN = 20
DIRECTORY_WORDS = {"added": "made", "deleted": "removed", "mode": "mode"}
DIRECTORY_STYLE = {"added": "green", "deleted": "red", "mode": "yellow"}
SHORT_OBJECT = 12
"""Characters of an object's name that are shown."""


def lent(view: DelegationView) -> Iterator[Text]:
    """Yield a line for each thing about the view that is not as it is by default."""
    if len(view.resources) > 1:
        shown = [f"{one.name} ({one.access_mode}) {clean_name(one.path)}" for one in view.resources]
        yield _line("lent  ", ", ".join(shown))
    if view.hidden:
        yield _line(f"hidden from {view.peer}  ", names(view.hidden))
    if view.left_out:
        yield _line("left out  ", f"{view.left_out:,} {'name' if view.left_out == 1 else 'names'}, as you asked")
    if view.unmountable:
        yield _line("left out: links and mounts  ", names(view.unmountable))
    for caution in view.cautions:
        yield _line("in a mount  ", whole_line(caution), "yellow")
    for line in view.terms:
        yield _line("terms  ", whole_line(line))
    if view.undo == "done":
        yield _line("taken back  ", "what it wrote is undone", "yellow")
    if view.revealed:
        yield _line("shown on request  ", names(view.revealed), "yellow")
    if view.unlocked:
        yield _line("unlocked on request  ", names(view.unlocked), "yellow")
    if view.sandbox_profile is not None and (loose := _loose(view.sandbox_profile)):
        yield _line(f"{view.peer}'s agent  ", loose, "yellow")
    if view.git != "hidden":
        what = "read-only" if view.git == "ro" else "writable, but for what git executes"
        yield _line("repository  ", f".git shown, {what}", "yellow")
    for why in view.git_hidden:
        yield _line(".git stays hidden  ", whole_line(why))


def repository_lines(report: AuditReport) -> Iterator[Text]:
    """Yield a line for each reference that was made, moved or deleted, and one for what an index was to hide."""
    for ref in report.refs[:MAX_REFS_SHOWN]:
        yield Text.assemble(
            (clean_name(ref.name), "yellow"), f"  {_object(ref.old)} to {_object(ref.new)}", ("  (reference)", "dim")
        )
    if (left := len(report.refs) - MAX_REFS_SHOWN) > 0:
        yield Text(f"and {left} more references", style="dim")
    if report.refs_bring:
        yield Text.assemble(
            (names(report.refs_bring), "red"),
            ("  (in commits of these references: hidden from the agent, or run by your tools once checked out)", "dim"),
        )
    if report.index_marks:
        yield Text.assemble(
            (names(report.index_marks), "yellow"),
            ("  (the agent's index had git not see changes of it; the mark was taken off)", "dim"),
        )


def beside_lines(report: AuditReport) -> Iterator[Text]:
    """Yield a line for each file that somebody else edited as well, and for what can't be taken back."""
    for edit in report.others_edits[:MAX_NAMES_SHOWN]:
        where = (f"  ({clean_name(edit.where)})", "dim")
        yield Text.assemble(("edited by somebody else, too  ", "yellow"), clean_name(edit.path), where)
    if (left := len(report.others_edits) - MAX_NAMES_SHOWN) > 0:
        yield Text(f"and {left:,} more that somebody else edited, too", style="yellow")
    if report.not_kept:
        yield Text.assemble(
            ("can't be taken back  ", "yellow"),
            names(report.not_kept),
            ("  (what it held before was too much to keep)", "dim"),
        )


def unseen_lines(report: AuditReport) -> Iterator[Text]:
    """Yield a line for each path that the audit could not look at; what lies there may have changed unseen."""
    found = report.unseen_lines
    for line in found[:MAX_NAMES_SHOWN]:
        yield Text.assemble(("not looked at  ", "yellow"), clean_name(line))
    if (left := report.unseen - min(len(found), MAX_NAMES_SHOWN)) > 0:
        yield Text(f"and {left:,} more that could not be looked at", style="yellow")


def directory_lines(directories: Sequence[DirectoryChange], counted: int) -> Iterator[Text]:
    """Yield a line for each directory that was made, removed, or got other permissions."""
    for one in directories[:MAX_DIRECTORIES_SHOWN]:
        line = Text.assemble((f"{DIRECTORY_WORDS[one.change]}  ", DIRECTORY_STYLE[one.change]), clean_name(one.path))
        line.append(mode_change(one.mode_before, one.mode_after), style="dim")
        if one.by == "other":
            line.append("  (not by the executor)", style="yellow")
        yield line
    if (left := counted - min(len(directories), MAX_DIRECTORIES_SHOWN)) > 0:
        yield Text(f"and {left:,} more {'directory' if left == 1 else 'directories'}", style="dim")


def mode_change(before: str | None, after: str | None) -> str:
    """Return two modes as they are shown beside a name; empty where there is no difference."""
    return f"  {before} to {after}" if before is not None and after is not None and before != after else ""


def directory_counts(added: int, deleted: int, mode: int) -> str:
    """Return how many directories were changed and how; empty where none was."""
    kinds = ((added, "made"), (deleted, "removed"), (mode, "with another mode"))
    facts = [f"{number:,} {kind}" for number, kind in kinds if number]
    return f"directories: {', '.join(facts)}" if facts else ""


def modes(view: DelegationView) -> str:
    """Return the access of a delegation in a few characters."""
    more = len(view.resources) - 1
    return f"{view.access_mode} +{more}" if more > 0 else view.access_mode


def names(found: Sequence[str]) -> str:
    """Return the first of some names."""
    shown = ", ".join(clean_name(name) for name in found[:MAX_NAMES_SHOWN])
    left = len(found) - MAX_NAMES_SHOWN
    return f"{shown} and {left} more" if left > 0 else shown


def _line(label: str, text: str, style: str = "dim") -> Text:
    return Text.assemble("  ", (label, style), text)


def _object(value: str | None) -> str:
    if value is None:
        return "nothing"
    return whole_line(value.removeprefix("ref: ")) if value.startswith("ref: ") else value[:SHORT_OBJECT]


def _loose(profile: SandboxView) -> str:
    """Return in what an agent is not held back, as its daemon says."""
    loose = [] if profile.cwd_only else ["sees more of that machine than what is lent"]
    if profile.allow_network:
        loose.append("has a network")
    return " and ".join(loose)
