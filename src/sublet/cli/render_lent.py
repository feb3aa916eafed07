"""What people see of what a delegation lends: its directories, what stays here, and what was opened on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from sublet.protocol.text import clean_line, clean_name

if TYPE_CHECKING:
    from sublet.daemon.api.models import AuditReport, DelegationView

MAX_NAMES_SHOWN = 8
MAX_REFS_SHOWN = 20
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
    if view.revealed:
        yield _line("shown on request  ", names(view.revealed), "yellow")
    if view.unlocked:
        yield _line("unlocked on request  ", names(view.unlocked), "yellow")
    if view.git != "hidden":
        what = "read-only" if view.git == "ro" else "writable, but for what git executes"
        yield _line("repository  ", f".git shown, {what}", "yellow")
    for why in view.git_hidden:
        yield _line(".git stays hidden  ", clean_line(why, 400))


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
    return clean_line(value.removeprefix("ref: "), 80) if value.startswith("ref: ") else value[:SHORT_OBJECT]
