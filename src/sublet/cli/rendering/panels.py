"""How panels look in a terminal: the members side by side, and the files that they changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from sublet.cli.rendering.columns import Columns, Quoted
from sublet.cli.rendering.words import MAX_FILES_SHOWN, whole_line
from sublet.protocol.panels import MemberState
from sublet.protocol.text import clean, clean_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from sublet.cli.rendering.screen import Symbols
    from sublet.daemon.api.panels import MemberView, PanelChange, PanelReview, PanelView

MAX_PRINTED_CHARS = 10_000
_STYLES = {
    MemberState.WORKING: "yellow",
    MemberState.CHECKING: "yellow",
    MemberState.PASSED: "green",
    MemberState.FAILED: "red",
    MemberState.NONE: "red",
}
_WORDS = {
    MemberState.WORKING: "works",
    MemberState.CHECKING: "is checked",
    MemberState.PASSED: "passed",
    MemberState.FAILED: "failed",
    MemberState.NONE: "no result",
    MemberState.READY: "has a result",
}


def member_line(member: MemberView) -> str:
    """Return how a member stands, in one line."""
    line = f"  {member.member}  {whole_line(member.address)}  {_WORDS[member.state]}"
    return f"{line}: {_why(member)}" if _why(member) else line


def panel_table(view: PanelView) -> RenderableType:
    """Return for each member who it is, how it stands, what it changed, and how the check ended."""
    rows = [
        [
            Text(str(one.member)),
            Text(whole_line(one.address)),
            Text(_WORDS[one.state], style=_STYLES.get(one.state, "")),
            Text(_files(one)),
            Text(_lines(one)),
            Text(_exit(one)),
            Text(f"{one.seconds:.0f} s"),
            Text(one.delegation_id),
        ]
        for one in view.members
    ]
    return Columns(("n", "agent", "state", "files", "lines", "check", "worked", "delegation"), rows)


def file_table(found: PanelReview, symbols: Symbols) -> RenderableType:
    """Return each file, with what each member did to it."""
    members = [one.member for one in found.panel.members]
    rows = []
    for file in found.files[:MAX_FILES_SHOWN]:
        by_member = {one.member: one for one in file.changes}
        cells = [_change(by_member.get(number), symbols) for number in members]
        rows.append([Text(clean_name(file.path)), *cells])
    if (left := len(found.files) - MAX_FILES_SHOWN) > 0:
        rows.append([Text(f"and {left} more", style="dim"), *(Text("") for _ in members)])
    return Columns(("file", *map(str, members)), rows)


def check_outputs(view: PanelView, symbols: Symbols) -> Iterator[RenderableType]:
    """Yield the end of what each check printed that did not pass: it may be text of the member's."""
    for one in view.members:
        if one.state is MemberState.FAILED and one.check_output:
            yield Text(f"check of {one.member}, {whole_line(one.address)}:", style="bold")
            for line in clean(one.check_output, MAX_PRINTED_CHARS).rstrip().splitlines():
                yield Quoted(line, f"{one.member} {symbols.bar} ")


def _why(member: MemberView) -> str:
    if member.state is MemberState.FAILED:
        return whole_line(member.check_reason) or f"the check ended with {member.exit_code}"
    if member.state is MemberState.NONE and member.error is not None:
        return whole_line(member.error.message)
    return ""


def _files(member: MemberView) -> str:
    changes = member.change_set
    if changes is None:
        return "-"
    return str(changes.added + changes.changed + changes.deleted + changes.renamed + changes.mode_changed)


def _lines(member: MemberView) -> str:
    changes = member.change_set
    return "-" if changes is None else f"+{changes.lines_added} -{changes.lines_deleted}"


def _exit(member: MemberView) -> str:
    if member.exit_code is not None:
        return f"exit {member.exit_code}"
    return whole_line(member.check_reason) or "-"


def _change(change: PanelChange | None, symbols: Symbols) -> Text:
    if change is None:
        return Text("-", style="dim")
    parts: list[str] = [change.change] if change.change != "changed" else []
    if change.lines_added is not None and change.lines_deleted is not None:
        parts.append(f"+{change.lines_added} {symbols.minus}{change.lines_deleted}")
    return Text(" ".join(parts) or "binary", style="red" if change.conflict else "")
