"""``sublet prune``: forget what is over, by age and size, or only tell what would go."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.values import JsonFlag, byte_count, duration
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sublet.daemon.api.pruning import PruneReport
    from sublet.daemon.control.client import ControlClient as Control

MAX_ITEMS_SHOWN = 40
_ONE = {
    "delegations": "delegation",
    "assignments": "assignment",
    "shadows": "audit repository",
    "results": "result",
    "sessions": "session",
    "rooms": "room",
}
_MANY = {"shadows": "audit repositories"}


def prune(
    ctx: typer.Context,
    older_than: Annotated[
        int | None,
        typer.Option(metavar="TIME", parser=duration, help="Only what ended longer ago: 12h, 7d.", show_default=False),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE", parser=byte_count, help="The oldest, until the rest is no larger: 500M.", show_default=False
        ),
    ] = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="Also results that wait for your review.", show_default=False)
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Only say what would go.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Forget what is over: delegations, audits, sessions.

    Rooms of delegations go with them, and `diff` knows them no more. Your own files stay as they are, and so does what
    is under way. The daemon does it by itself for what is old; `retention` in config.json says how old.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.pruning import PRUNE, PruneRequest

        asked = PruneRequest(older_than_seconds=older_than, max_bytes=max_bytes, pending=pending, dry_run=dry_run)
        report = await control.call(PRUNE, asked)
        if as_json:
            screen.emit(report.model_dump(mode="json"))
            return
        if dry_run and report.items:
            screen.show(_listing(report, datetime.now(UTC)))
        screen.show(_sum(report))

    run(ctx, screen, body)


def _listing(report: PruneReport, now: datetime) -> RenderableType:
    from rich.text import Text

    from sublet.cli.rendering.columns import Columns
    from sublet.cli.rendering.delegations import size, span
    from sublet.protocol.times import told_moment

    rows = []
    for item in report.items[:MAX_ITEMS_SHOWN]:
        ended = span(max(0.0, (now - told_moment(item.ended_at)).total_seconds()))
        facts = (_ONE.get(item.kind, item.kind), size(item.bytes), f"{ended} ago", item.what, item.reason)
        rows.append([Text(fact) for fact in facts])
    return Columns(("kind", "size", "ended", "what", "because"), rows)


def _sum(report: PruneReport) -> str:
    from sublet.cli.rendering.delegations import size
    from sublet.cli.rendering.words import count

    if not report.counts:
        return "Nothing to remove."
    parts = [
        count(number, _ONE.get(kind, kind), _MANY.get(kind, "") or f"{_ONE.get(kind, kind)}s")
        for kind, number in report.counts.items()
    ]
    if report.events:
        parts.append(count(report.events, "event"))
    more = sum(report.counts.values()) - MAX_ITEMS_SHOWN
    text = f"{'Would remove' if report.dry_run else 'Removed'} {', '.join(parts)}: {size(report.bytes)}."
    if report.store_bytes_before > report.store_bytes_after:
        text += f" The database takes {size(report.store_bytes_after)} now, and took {size(report.store_bytes_before)}."
    return f"{text} The list shows the first {MAX_ITEMS_SHOWN}." if report.dry_run and more > 0 else text
