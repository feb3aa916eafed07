"""Commands by which a person decides: approvals list, show, approve, deny, and the watch that asks one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.help import Sectioned, group
from sublet.cli.options.given_text import typed_line
from sublet.cli.options.grants import AnyFlag, TtlOption, UsesOption, WhereOption, terms
from sublet.cli.options.passphrase import approver_of, unlocked
from sublet.cli.options.values import JsonFlag, whole_id
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from nacl.signing import SigningKey

    from sublet.daemon.api.approvals import ApprovalView, ApproverView, Terms
    from sublet.daemon.control.client import ControlClient as Control

MAX_LISTED = 200
POLL_SECONDS = 45.0

ApprovalArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Approval; its beginning is enough, or last.", show_default=False)
]

approvals = group(
    "approvals",
    "Calls of agents that wait for your yes or no.",
    invoke_without_command=True,
)


@approvals.callback()
def _approvals(
    ctx: typer.Context,
    watch: Annotated[
        bool, typer.Option("--watch", help="Ask the passphrase once, then decide as calls come.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    if ctx.invoked_subcommand is not None:
        if watch or as_json:
            raise typer.BadParameter(f"that goes behind {ctx.invoked_subcommand}, where it has it")
        return
    if watch and as_json:
        scripts = "sublet events --kind approval_required --follow --json"
        raise typer.BadParameter(f"--watch is for people; for scripts: {scripts}")
    if watch:
        _watch(ctx)
    else:
        _list(ctx, everything=False, as_json=as_json)


@approvals.command(cls=Sectioned, name="list")
def approvals_list(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are decided.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """List what waits for you."""
    _list(ctx, everything=everything, as_json=as_json)


@approvals.command(cls=Sectioned, name="show")
def approvals_show(ctx: typer.Context, approval_id: ApprovalArgument, as_json: JsonFlag = False) -> None:
    """Show a call with all of its arguments."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        found = await _complete(control, await _resolved(control, approval_id))
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        else:
            _show(screen, found, complete=True)

    run(ctx, screen, body)


@approvals.command(cls=Sectioned, name="approve")
def approvals_approve(
    ctx: typer.Context,
    approval_id: ApprovalArgument,
    ttl: TtlOption = None,
    max_uses: UsesOption = 1,
    any_arguments: AnyFlag = False,
    where: WhereOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Approve exactly this call. The passphrase is asked in the terminal.

    The agent gets a grant for it, by default for one use within five minutes and never longer than its lease.
    """
    screen = Screen(as_json=as_json)
    wanted = terms(ttl, max_uses, any_arguments, where)

    async def body(control: Control) -> None:
        approver = await approver_of(control)
        found = await _complete(control, await _resolved(control, approval_id))
        if not as_json:
            from sublet.cli.rendering.approvals import terms_words

            _show(screen, found, complete=False)
            screen.show(f"You approve it {terms_words(wanted)}.")
        done = await _approve(control, approver, unlocked(approver), found, wanted)
        if as_json:
            screen.emit(done.model_dump(mode="json"))
        else:
            screen.show(f"Approved {done.id}, {terms_words(wanted)}.")

    run(ctx, screen, body)


@approvals.command(cls=Sectioned, name="deny")
def approvals_deny(ctx: typer.Context, approval_id: ApprovalArgument, as_json: JsonFlag = False) -> None:
    """Refuse a call; that needs no passphrase. The agent goes on without it."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        done = await _deny(control, await _resolved(control, approval_id))
        if as_json:
            screen.emit(done.model_dump(mode="json"))
        else:
            screen.show(f"Denied {done.id}.")

    run(ctx, screen, body)


async def _listed(control: Control, *, pending: bool) -> list[ApprovalView]:
    from sublet.daemon.api.approvals import LIST_APPROVALS, ListApprovals

    return await control.call(LIST_APPROVALS, ListApprovals(limit=MAX_LISTED, pending=pending))


async def _complete(control: Control, approval_id: str) -> ApprovalView:
    from sublet.daemon.api.approvals import GET_APPROVAL, OneApproval

    return await control.call(GET_APPROVAL, OneApproval(approval_id=approval_id))


async def _deny(control: Control, approval_id: str) -> ApprovalView:
    from sublet.daemon.api.approvals import DENY_APPROVAL, DenyApproval

    return await control.call(DENY_APPROVAL, DenyApproval(approval_id=approval_id))


async def _resolved(control: Control, given: str) -> str:
    known = await _listed(control, pending=False)
    return whole_id(given, [one.id for one in known])


def _list(ctx: typer.Context, *, everything: bool, as_json: bool) -> None:
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        found = await _listed(control, pending=not everything)
        if as_json:
            screen.emit({"approvals": [one.model_dump(mode="json") for one in found]})
        elif found:
            from sublet.cli.rendering.approvals import approval_table

            screen.show(approval_table(found))
            if any(one.state == "pending" for one in found):
                screen.note("Decide: sublet approvals show|approve|deny ID")
        else:
            screen.note("Nothing was ever asked." if everything else "Nothing waits for you.")

    run(ctx, screen, body)


def _watch(ctx: typer.Context) -> None:
    screen = Screen()

    async def body(control: Control) -> None:
        from sublet.daemon.api.events import READ_EVENTS, ReadEvents

        approver = await approver_of(control)
        # The key stays in this process, and goes with it.
        key = unlocked(approver)
        screen.note("Waiting for calls that need approval. Ctrl-C ends it and forgets the key.")
        cursor, passed = 0, set[str]()
        while True:
            for one in reversed(await _listed(control, pending=True)):
                if one.id not in passed:
                    passed.add(one.id)
                    await _decide(control, screen, approver, key, one)
            page = await control.call(READ_EVENTS, ReadEvents(cursor=cursor, timeout=POLL_SECONDS, limit=500))
            cursor = page.cursor

    run(ctx, screen, body)


async def _decide(
    control: Control, screen: Screen, approver: ApproverView, key: SigningKey, found: ApprovalView
) -> None:
    """Ask about one call on the terminal, and tell what became of it."""
    from sublet.daemon.api.approvals import Terms
    from sublet.protocol.errors import SubletError

    _show(screen, found, complete=False)
    while True:
        screen.out.print("Approve once? [y/n/a: show all/s: skip] ", end="")
        answer = typed_line()
        if answer == "a":
            _show(screen, await _complete(control, found.id), complete=True)
        elif answer in ("y", "n", "s", ""):
            break
    try:
        if answer == "y":
            await _approve(control, approver, key, found, Terms())
            screen.show(f"Approved {found.id}.")
        elif answer == "n":
            await _deny(control, found.id)
            screen.show(f"Denied {found.id}.")
    except SubletError as error:
        screen.fail(error)


async def _approve(
    control: Control, approver: ApproverView, key: SigningKey, found: ApprovalView, wanted: Terms
) -> ApprovalView:
    from sublet.daemon.api.approval_statements import approve_statement
    from sublet.daemon.api.approvals import APPROVE, ApproveRequest
    from sublet.protocol.statement_signing import sign_statement

    signed = sign_statement(approve_statement(approver.daemon, found, wanted), key)
    return await control.call(APPROVE, ApproveRequest(approval_id=found.id, signed=signed))


def _show(screen: Screen, found: ApprovalView, *, complete: bool) -> None:
    from sublet.cli.rendering.approvals import approval_details

    screen.show(*approval_details(found, complete=complete))
