"""What people see of delegations and audits: calm, bounded, and nothing of a peer's that could pass for ours."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sublet.cli.rendering.columns import Columns, Fitting, Quoted, inset
from sublet.cli.rendering.lent import (
    beside_lines,
    directory_counts,
    directory_lines,
    lent,
    mode_change,
    modes,
    repository_lines,
    unseen_lines,
)
from sublet.cli.rendering.screen import PEERS_WORDS
from sublet.cli.rendering.words import MAX_FILES_SHOWN, whole_line
from sublet.protocol.lifecycle import AssignmentState, DelegationState
from sublet.protocol.text import clean, clean_name, escape_text
from sublet.protocol.times import told_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sublet.cli.rendering.screen import Symbols
    from sublet.daemon.api.assignments import AssignmentView
    from sublet.daemon.api.audit_models import AuditReport, FileChange
    from sublet.daemon.api.delegation_views import DelegationView

QUOTA_SHARE = 20
"""From this share of a bound on, a twentieth, it is shown how much of it is used."""
MAX_LEFT_BEHIND_SHOWN = 10
SHORT_ID = 12
"""Characters of an id that tables show on a terminal: ``dlg_`` and 32 random bits."""

STATE_STYLE = {
    DelegationState.COMPLETED: "green",
    DelegationState.RUNNING: "cyan",
    DelegationState.ERROR: "red",
    DelegationState.CANCELLED: "yellow",
    DelegationState.EXPIRED: "yellow",
}
_WORK_STYLE = {
    AssignmentState.ACTIVE: "cyan",
    AssignmentState.COMPLETED: "green",
    AssignmentState.ERROR: "red",
}
_HEADS = (
    *("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode"),
    *("new directory", "deleted directory"),
)
_CHANGE_STYLE = {"added": "green", "changed": "yellow", "deleted": "red", "mode": "yellow"}


def summary(
    view: DelegationView, symbols: Symbols, has_shown: Callable[[str], bool] = lambda words: False
) -> RenderableType:
    """Return how a delegation stands: state, changes, what stayed hidden, the peer's words, the error.

    Args:
        view: the delegation.
        symbols: signs.
        has_shown: tells whether words stand above already; they are not said again.
    """
    parts: list[RenderableType] = [headline(view, symbols)]
    if view.audit is not None:
        parts.append(inset(changes(view.audit, symbols), 2))
    if view.result is not None and view.result.change_set is not None:
        from sublet.cli.rendering.review import staged

        if view.result_mode == "staged":
            parts.append(inset(staged(view.result.change_set, symbols), 2))
        elif not view.result.change_set.is_empty:
            parts.append(inset(staged(view.result.change_set, symbols, "brought back"), 2))
    parts += [
        Text.assemble("  ", ("left behind  ", "yellow"), whole_line(line))
        for line in view.left_behind[:MAX_LEFT_BEHIND_SHOWN]
    ]
    if (more := len(view.left_behind) - MAX_LEFT_BEHIND_SHOWN) > 0:
        parts.append(Text(f"  and {more} more were left behind", style="yellow"))
    if view.audit_error is not None:
        why = whole_line(view.audit_error.message)
        parts.append(Text.assemble("  ", ("no audit  ", "yellow"), f"what changed is not known: {why}"))
    if _is_quota_worth_a_line(view):
        parts.append(Text.assemble("  ", ("quota  ", "dim"), _added(view)))
    if narrowed := narrowed_time(view):
        parts.append(Text.assemble("  ", ("time  ", "dim"), narrowed))
    parts += lent(view)
    if view.result is not None and (note := view.result.link_note()):
        parts.append(Text.assemble("  ", ("link  ", "yellow"), note))
    if view.result is not None:
        parts += [Text.assemble("  ", ("prompts  ", "dim"), note) for note in view.result.prompt_notes()]
        said = [t for t in (view.result.final_summary, *view.result.highlights, view.result.notes) if t]
        news = [words for words in said if not has_shown(words)]
        if news or (not said and view.error is None):
            parts.append(quoted(view.peer, "\n\n".join(news) or "(nothing)", symbols))
        elif said:
            above = "what stands above (its own words, not checked)"
            parts.append(Text.assemble("  ", (f"{view.peer} says ", "bold"), (above, "dim")))
    if view.room_id is not None:
        parts.append(Text.assemble("  ", ("room     ", "dim"), view.room_id))
    if view.error is not None:
        parts.append(_failure(view))
    return Group(*parts)


def headline(view: DelegationView, symbols: Symbols) -> RenderableType:
    """Return one line: sign, state, how long, who, which; its id on a line of its own where it has no room."""
    style = STATE_STYLE.get(view.state, "")
    done = view.state is DelegationState.COMPLETED
    bad = view.state in {DelegationState.ERROR, DelegationState.CANCELLED, DelegationState.EXPIRED}
    sign = symbols.good if done else symbols.bad if bad else symbols.dot
    line = Text.assemble((f"{sign} {view.state.value}", f"bold {style}".strip()))
    if view.condition is not None and not (done or bad):
        line.append(f" ({whole_line(view.condition.detail)})", style="yellow")
    facts = [who(view), _access(view)]
    if view.transport not in (None, "sshfs"):
        facts.append(f"by {view.transport}")
    if done or bad:
        facts.insert(0, f"after {took(view)}")
    elif view.remaining_seconds is not None:
        facts.append(f"{span(view.remaining_seconds)} left")
    for fact in facts:
        line.append(f" {symbols.dot} {fact}", style="dim")
    if view.audit is not None and view.audit.unseen:
        line.append(f" {symbols.dot} {view.audit.unseen:,} not looked at", style="yellow")
    if view.audit is not None and view.audit.others_edits:
        line.append(f" {symbols.dot} {len(view.audit.others_edits):,} edited by others, too", style="yellow")
    if view.audit is not None and view.audit.not_kept:
        line.append(f" {symbols.dot} {len(view.audit.not_kept):,} can't be taken back", style="yellow")
    return Fitting(line, Text(f" {symbols.dot} {view.delegation_id}", "dim"), Text(f"  {view.delegation_id}", "dim"))


def changes(report: AuditReport, symbols: Symbols) -> RenderableType:
    """Return the changed files with their line counts, the changed directories, and what could not be looked at."""
    more: list[RenderableType] = [
        *directory_lines(report.directories, sum(report.directory_counts.values())),
        *repository_lines(report),
        *beside_lines(report),
        *unseen_lines(report),
    ]
    if not (report.files or report.added or report.changed or report.deleted or report.mode_changed):
        return Group(*more) if more else Text("no file was changed", style="dim")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    rows = [(change, _counts(change, symbols)) for change in report.files[:MAX_FILES_SHOWN]]
    counted = any(counts for _, counts in rows)
    if counted:  # rich takes the gap before a column without content from the names
        table.add_column(no_wrap=True, justify="right")
    for change, counts in rows:
        kind = Text(change.change, style=_CHANGE_STYLE[change.change])
        table.add_row(kind, _file(change), *([counts] if counted else []))
    parts: list[RenderableType] = [table]
    if (left := max(len(report.files), sum(report.counts.values())) - MAX_FILES_SHOWN) > 0:
        parts.append(Text(f"and {left:,} more", style="dim"))
    parts += more
    if report.truncated:
        parts.append(Text("not all of them are in the report: there are more than it can hold", style="yellow"))
    return Group(*parts)


def totals(report: AuditReport, symbols: Symbols) -> Text:
    """Return the counts of a report in one line, complete where its lists are cut; empty where there are none."""
    counted = report.counts
    kinds = (
        (counted.get("added", 0), "added"),
        (counted.get("changed", 0), "changed"),
        (counted.get("deleted", 0), "deleted"),
        (counted.get("mode", 0), "with another mode"),
    )
    facts = [f"{number:,} {kind}" for number, kind in kinds if number]
    if facts:
        facts.append(f"+{report.lines_added} {symbols.minus}{report.lines_deleted} lines")
    made = report.directory_counts
    if directories := directory_counts(made.get("added", 0), made.get("deleted", 0), made.get("mode", 0)):
        facts.append(directories)
    text = Text(f" {symbols.dot} ".join(facts), style="dim")
    if report.unseen:
        text.append(f" {symbols.dot} " if facts else "", style="dim")
        text.append(f"{report.unseen:,} not looked at", style="yellow")
    if report.others_edits:
        text.append(f" {symbols.dot} " if text else "", style="dim")
        text.append(f"{len(report.others_edits):,} edited by others, too", style="yellow")
    return text


def listing(views: Sequence[DelegationView], now: datetime) -> RenderableType:
    """Return delegations as a table, newest first."""
    rows = []
    for view in views:
        state = Text(view.state.value, style=STATE_STYLE.get(view.state, ""))
        if view.condition is not None:
            state.append(f" ({view.condition.kind})", style="yellow")
        elif view.result is not None and view.result.change_set is not None:
            state.append(" (to review)" if view.result.change_set.status == "pending" else "", style="yellow")
        made = max(0.0, (now - told_moment(view.created_at)).total_seconds())
        left = "" if view.remaining_seconds is None else span(view.remaining_seconds)
        facts = (who(view), modes(view), span(made), left, whole_line(view.description))
        rows.append([Text(view.delegation_id), state, *(Text(fact) for fact in facts)])
    return Columns(("id", "state", "peer", "mode", "age", "left", "task"), rows, {"id": SHORT_ID})


def work_listing(views: Sequence[AssignmentView], now: datetime) -> RenderableType:
    """Return work done for others as a table, newest first."""
    rows = []
    for view in views:
        state = Text(view.state.value, style=_WORK_STYLE.get(view.state, ""))
        why = view.outcome or (view.error.code.lower() if view.error is not None else "done")
        if why != "done":
            state.append(f" ({whole_line(why)})", style="yellow")
        made = max(0.0, (now - told_moment(view.created_at)).total_seconds())
        left = "" if view.remaining_seconds is None else span(view.remaining_seconds)
        facts = (view.peer, view.agent, view.access_mode, span(made), left, whole_line(view.description))
        rows.append([Text(view.delegation_id), state, *(Text(fact) for fact in facts)])
    return Columns(("id", "state", "for", "agent", "mode", "age", "left", "task"), rows, {"id": SHORT_ID})


def quoted(peer: str, words: str, symbols: Symbols) -> RenderableType:
    """Return a peer's words, cleaned, and marked as its words on every line."""
    head = Text.assemble("  ", (f"{peer} says ", "bold"), ("(its own words, not checked)", "dim"))
    return Group(head, Quoted(clean(words), f"  {symbols.bar} "))


def diff_text(patch: str) -> Text:
    """Return a patch with its lines coloured; controls are shown, never obeyed."""
    text = Text()
    for line in escape_text(patch).split("\n"):
        text.append(line + "\n", style=_diff_style(line))
    text.right_crop(1)
    return text


def who(view: DelegationView) -> str:
    """Return ``peer`` or ``peer/agent``."""
    return f"{view.peer}/{view.agent}" if view.agent else view.peer


def span(seconds: float) -> str:
    """Return a length of time in the two units that matter: ``12 s``, ``4 min 05 s``, ``2 h 10 min``, ``3 d 4 h``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def size(count: int) -> str:
    """Return a number of bytes in a unit that keeps it short."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def local_time(text: str) -> str:
    """Return the moment that an RFC 3339 text names by this machine's clock: ``2026-11-28 16:05:09``."""
    return told_moment(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(start: str, end: str) -> float:
    """Return the seconds between two RFC 3339 texts, never negative."""
    return max(0.0, (told_moment(end) - told_moment(start)).total_seconds())


def _access(view: DelegationView) -> str:
    if view.access_mode == "ro":
        return "read-only"
    return "a copy, read-write" if view.result_mode == "staged" else "read-write"


def narrowed_time(view: DelegationView) -> str:
    """Return that less time was lent than was asked for; empty where it was not."""
    asked = view.requested_ttl_seconds
    return f"{span(asked)} asked for, {span(view.ttl_seconds)} granted" if asked > view.ttl_seconds else ""


def took(view: DelegationView) -> str:
    """Return how long a delegation that is over went on."""
    seconds = age(view.created_at, view.updated_at)
    return f"{seconds:.1f} s" if seconds < 10 else span(seconds)


def _failure(view: DelegationView) -> RenderableType:
    assert view.error is not None
    line = Text.assemble("  ", whole_line(view.error.message), (f"  [{whole_line(view.error.code)}]", "dim"))
    if view.error.from_peer:
        line.append(f"  ({PEERS_WORDS})", style="dim")
    if not view.error.hint:
        return line
    return Group(line, inset(Text(clean(view.error.hint), style="dim"), 2))


def _file(change: FileChange) -> Text:
    name = Text(clean_name(change.path))
    name.append(mode_change(change.mode_before, change.mode_after), style="dim")
    if change.by == "other":
        name.append("  (not by the executor)", style="yellow")
    return name


def _counts(change: FileChange, symbols: Symbols) -> Text:
    if change.lines_added is None or change.lines_deleted is None:
        return Text("" if change.change == "mode" else "binary", style="dim")
    text = Text()
    if change.lines_added:
        text.append(f"+{change.lines_added}", style="green")
    if change.lines_deleted:
        text.append(
            f" {symbols.minus}{change.lines_deleted}" if text else f"{symbols.minus}{change.lines_deleted}", "red"
        )
    return text


def _is_quota_worth_a_line(view: DelegationView) -> bool:
    """Tell whether a noticeable part of the quota is used; where it is refused, more is than that."""
    if view.quota is None or not view.usage.operations:
        return False
    pairs = (
        (view.usage.bytes_added, view.quota.max_total_bytes),
        (view.usage.files_added, view.quota.max_files),
    )
    return any(used * QUOTA_SHARE >= bound for used, bound in pairs)


def _added(view: DelegationView) -> str:
    """Return how much was added of what may be; what was removed counts against it."""
    assert view.quota is not None
    used, quota = view.usage, view.quota
    amount = f"-{size(-used.bytes_added)}" if used.bytes_added < 0 else size(used.bytes_added)
    return f"{amount} of {size(quota.max_total_bytes)} and {used.files_added:,} of {quota.max_files:,} files added"


def _diff_style(line: str) -> str:
    if line.startswith(_HEADS):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    if line.startswith("+"):
        return "green"
    return "red" if line.startswith("-") else ""
