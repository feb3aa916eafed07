"""``sublet diff`` and ``sublet audit ID``: what a delegation changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.delegations import IdArgument, resolve
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.patches import show_patch
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


def diff(ctx: typer.Context, delegation_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Print the patch of what a delegation changed.

    Coloured on a terminal, plain in a pipe. Characters that could steer a terminal are written out as escapes. With
    --json it is the report of `audit --patch`.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.delegation_fields import OneWithPatch
        from sublet.daemon.api.delegations import AUDIT_DELEGATION

        found = await resolve(control, delegation_id)
        report = await control.call(AUDIT_DELEGATION, OneWithPatch(delegation_id=found, patch=True))
        if as_json:
            screen.emit({"delegation_id": found, **report.model_dump(mode="json")})
            return
        from sublet.cli.rendering.lent import beside_lines, unseen_lines

        show_patch(report.patch or "", screen, nothing="No lines were changed.")
        for line in (*beside_lines(report), *unseen_lines(report)):
            screen.err.print(line)
        if report.patch_truncated:
            screen.note("The patch was cut: there are more changes than it can hold.")

    run(ctx, screen, body)


def audit(
    ctx: typer.Context,
    delegation_id: IdArgument,
    patch: Annotated[bool, typer.Option("--patch", help="With --json: include the patch.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """Report what a delegation changed, and by whom."""
    if patch and not as_json:
        raise typer.BadParameter("--patch goes with --json; for people: sublet diff ID")
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.delegation_fields import OneWithPatch
        from sublet.daemon.api.delegations import AUDIT_DELEGATION

        found = await resolve(control, delegation_id)
        report = await control.call(AUDIT_DELEGATION, OneWithPatch(delegation_id=found, patch=patch))
        if as_json:
            screen.emit({"delegation_id": found, **report.model_dump(mode="json")})
            return
        from sublet.cli.rendering.delegations import changes, totals

        screen.show(changes(report, screen.symbols))
        if counts := totals(report, screen.symbols):
            screen.show(counts)

    run(ctx, screen, body)
