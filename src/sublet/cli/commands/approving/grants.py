"""Commands about grants: grants list, create, revoke."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, cast

import typer

from sublet.cli.help import Sectioned, listing
from sublet.cli.options.grants import AnyFlag, TtlOption, UsesOption, WhereOption, terms
from sublet.cli.options.passphrase import approver_of, unlocked
from sublet.cli.options.values import JsonFlag, whole_id
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.canonical import JsonValue

if TYPE_CHECKING:
    from sublet.daemon.api.approvals import GrantView
    from sublet.daemon.control.client import ControlClient as Control

MAX_LISTED = 200

grants = listing("grants", "What agents may call since you have allowed it.")


@grants.command(cls=Sectioned, name="list")
def grants_list(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the grants that can be used."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        found = await _listed(control, usable=not everything)
        if as_json:
            screen.emit({"grants": [one.model_dump(mode="json") for one in found]})
        elif found:
            from sublet.cli.rendering.approvals import grant_table

            screen.show(grant_table(found))
        else:
            screen.note("No grants. They come of `sublet approvals approve`, or of `sublet grants create`.")

    run(ctx, screen, body)


@grants.command(cls=Sectioned, name="create")
def grants_create(
    ctx: typer.Context,
    agent: Annotated[str, typer.Option("--agent", metavar="ID", help="Agent that may.", show_default=False)],
    tool: Annotated[str, typer.Option("--tool", metavar="NAME", help="Tool it may call.", show_default=False)],
    args: Annotated[
        str | None,
        typer.Option("--args", metavar="JSON", help="Exactly these arguments. [default: {}, a call without any]"),
    ] = None,
    ttl: TtlOption = None,
    max_uses: UsesOption = 1,
    any_arguments: AnyFlag = False,
    where: WhereOption = None,
    scope: Annotated[
        str, typer.Option("--scope", metavar="ID", help="Only in this delegation or session. [default: in any]")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Allow a call before it is asked for. The passphrase is asked in the terminal."""
    screen = Screen(as_json=as_json)
    if args is not None and any_arguments:
        raise typer.BadParameter("give the exact arguments by --args, or --any-arguments, not both")
    arguments = None if any_arguments else _arguments(args or "{}")
    wanted = terms(ttl, max_uses, any_arguments, where)

    async def body(control: Control) -> None:
        from sublet.cli.rendering.approvals import terms_words
        from sublet.cli.rendering.words import whole_line
        from sublet.daemon.api.approval_statements import issue_statement
        from sublet.daemon.api.approvals import ISSUE_GRANT, IssueGrant
        from sublet.protocol.statement_signing import sign_statement

        approver = await approver_of(control)
        how = terms_words(wanted)
        if arguments == {}:
            how = how.replace("with exactly these arguments", "without arguments")
        if not as_json:
            screen.show(f"You let {whole_line(agent)} call {whole_line(tool)} {how}.")
        key = unlocked(approver)
        request = IssueGrant(agent=agent, tool=tool, arguments=arguments, scope=scope, terms=wanted)
        signed = sign_statement(issue_statement(approver.daemon, request), key)
        made = await control.call(ISSUE_GRANT, request.model_copy(update={"signed": signed}))
        if as_json:
            screen.emit(made.model_dump(mode="json"))
            return
        screen.show(f"{made.id}: {made.agent} may call {made.tool} {how}.")

    run(ctx, screen, body)


@grants.command(cls=Sectioned, name="revoke")
def grants_revoke(
    ctx: typer.Context,
    grant_id: Annotated[
        str, typer.Argument(metavar="ID", help="Grant; its beginning is enough, or last.", show_default=False)
    ],
    as_json: JsonFlag = False,
) -> None:
    """Take a grant back. What runs by it already goes on."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.approvals import REVOKE_GRANT, OneGrant

        known = [one.id for one in await _listed(control, usable=False)]
        done = await control.call(REVOKE_GRANT, OneGrant(grant_id=whole_id(grant_id, known)))
        if as_json:
            screen.emit(done.model_dump(mode="json"))
        else:
            screen.show(f"Revoked {done.id}.")

    run(ctx, screen, body)


async def _listed(control: Control, *, usable: bool) -> list[GrantView]:
    from sublet.daemon.api.approvals import LIST_GRANTS, ListGrants

    return await control.call(LIST_GRANTS, ListGrants(limit=MAX_LISTED, usable=usable))


def _arguments(text: str) -> dict[str, JsonValue]:
    try:
        found = json.loads(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not JSON") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("the arguments of a tool are a JSON object")
    return cast("dict[str, JsonValue]", found)
