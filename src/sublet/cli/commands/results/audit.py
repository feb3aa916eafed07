"""``sublet audit``: what a delegation changed, and the log of every decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sublet.cli.commands.results.changes import audit as delegation_audit
from sublet.cli.errors import Exit
from sublet.cli.help import Grouped, Sectioned, group
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

DELEGATION = "delegation"
FOLLOW_SECONDS = 20.0


class _IdOrCommand(Grouped):
    """A group whose first argument may be the id of a delegation in place of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command for delegations in front of what is no command's name."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [DELEGATION, *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands after the name."""
        return ["ID | COMMAND [ARGS]..."]


audit = group(
    "audit",
    "Report what a delegation changed; check the log.",
    cls=_IdOrCommand,
)

audit.command(cls=Sectioned, name=DELEGATION)(delegation_audit)


@audit.command(cls=Sectioned, name="log")
def audit_log(
    ctx: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as entries come, until interrupted.", show_default=False)
    ] = False,
    cursor: Annotated[
        int | None, typer.Option("--since", metavar="N", min=0, help="After entry N.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="How many to begin with.")] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.", show_default=False)
    ] = False,
) -> None:
    """Show who asked for what, and which rule decided."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.policy import READ_AUDIT_LOG, ReadAuditLog

        page, left = await control.call(READ_AUDIT_LOG, ReadAuditLog(cursor=cursor, limit=limit)), limit
        while True:
            left -= len(page.entries)
            for entry in page.entries:
                if as_json:
                    screen.emit(entry)
                else:
                    from sublet.cli.rendering.policy import entry_line

                    screen.show(entry_line(entry))
            if page.more and left > 0:  # long entries come in several pages
                page = await control.call(READ_AUDIT_LOG, ReadAuditLog(cursor=page.cursor, limit=left))
                continue
            if not follow:
                return
            request = ReadAuditLog(cursor=page.cursor, limit=limit, timeout=FOLLOW_SECONDS)
            page = await control.call(READ_AUDIT_LOG, request)

    run(ctx, screen, body)


@audit.command(cls=Sectioned, name="denials")
def audit_denials(
    ctx: typer.Context,
    before: Annotated[
        int | None, typer.Option("--before", metavar="N", min=1, help="Before entry N.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="How many.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show what was denied, and by which rule.

    The newest first; with what was left to a person.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.policy import LIST_DENIALS, ListDenials

        page = await control.call(LIST_DENIALS, ListDenials(before=before, limit=limit))
        if as_json:
            screen.emit(page.model_dump(mode="json"))
            return
        from sublet.cli.rendering.policy import denial_lines

        for entry in page.entries:
            screen.show(denial_lines(entry))
        if not page.entries:
            screen.note("Nothing was denied.")
        elif page.cursor:
            screen.note(f"Older ones: sublet audit denials --before {page.cursor}")

    run(ctx, screen, body)


@audit.command(cls=Sectioned, name="verify")
def audit_verify(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Check that the log of decisions is whole.

    Whole means that no entry was changed, removed, inserted, reordered or cut off; the status is 1 where it is not.

    Every entry holds the hash of the one before it, and the daemon's key signs the chain from time to time.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> Exit | None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.policy import VERIFY_AUDIT_LOG

        verdict = await control.call(VERIFY_AUDIT_LOG, Nothing())
        if as_json:
            screen.emit(verdict.model_dump(mode="json"))
        elif verdict.ok:
            signed = f"signed up to {verdict.signed}" if verdict.signed else "none of them signed yet"
            screen.show(f"{screen.symbols.good} unbroken: entries {verdict.first} to {verdict.last}, {signed}")
        else:
            screen.show(f"{screen.symbols.bad} broken: {verdict.problem}")
        return None if verdict.ok else Exit.ERROR

    run(ctx, screen, body)
