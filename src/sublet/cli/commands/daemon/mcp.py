"""``sublet mcp``: serving an MCP host, and telling hosts about it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import exit_for
from sublet.cli.help import Sectioned, group, verbatim
from sublet.cli.options.values import JsonFlag
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import SubletError
from sublet.protocol.text import escape_text

if TYPE_CHECKING:
    from sublet.mcp_server.install import Plan


class Client(StrEnum):
    """MCP hosts whose configuration can be edited."""

    CLAUDE = "claude"
    CURSOR = "cursor"
    VSCODE = "vscode"
    CODEX = "codex"


class Scope(StrEnum):
    """For whom the entry holds."""

    USER = "user"
    PROJECT = "project"


WhichClient = Annotated[Client, typer.Option("--client", help="Which host.")]
ForWhom = Annotated[
    Scope | None, typer.Option(help="For all projects or for this one. [default: user; vscode: project]")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change, and change nothing.", show_default=False)
]

INSTALL_EPILOG = verbatim(
    (
        "Examples",
        """sublet mcp install --client claude
sublet mcp install --client cursor --scope project --dry-run""",
    ),
)

mcp = group("mcp", "Serve an MCP host on stdio, as the host runs it.", invoke_without_command=True)


@mcp.callback()
def serve(ctx: typer.Context) -> None:
    """Serve an MCP host on stdio, as the host runs it.

    The daemon is started if none runs. Nobody types this; `sublet mcp install` tells a host to run it.
    """
    if ctx.invoked_subcommand is None:
        from sublet.mcp_server.relay import main

        raise typer.Exit(main())


@mcp.command(cls=Sectioned, epilog=INSTALL_EPILOG)
def install(client: WhichClient, scope: ForWhom = None, dry_run: DryRun = False, as_json: JsonFlag = False) -> None:
    """Add Sublet to the configuration of an MCP host.

    Nothing else in the file is touched, and a copy of the old one is kept beside it.
    """
    from sublet.mcp_server.install import plan_install

    plan = partial(plan_install, client.value, scope.value if scope else None, project=Path.cwd())
    _carry_out(plan, Screen(as_json=as_json), dry_run=dry_run, words=_INSTALLED)


@mcp.command(cls=Sectioned)
def uninstall(client: WhichClient, scope: ForWhom = None, dry_run: DryRun = False, as_json: JsonFlag = False) -> None:
    """Take Sublet out of the configuration of an MCP host.

    Nothing else in the file is touched, and a copy of the old one is kept beside it.
    """
    from sublet.mcp_server.install import plan_uninstall

    plan = partial(plan_uninstall, client.value, scope.value if scope else None, project=Path.cwd())
    _carry_out(plan, Screen(as_json=as_json), dry_run=dry_run, words=_UNINSTALLED)


_INSTALLED = ("has the entry already", "Added to")
_UNINSTALLED = ("has no entry of Sublet", "Taken out of")


def _carry_out(plan_it: Callable[[], Plan], screen: Screen, *, dry_run: bool, words: tuple[str, str]) -> None:
    from sublet.mcp_server.install import apply

    try:
        plan = plan_it()
        backup = None if dry_run else apply(plan)
    except SubletError as error:
        screen.fail(error)
        raise typer.Exit(exit_for(str(error.code))) from None
    if screen.as_json:
        screen.emit(
            {
                "client": plan.client,
                "path": str(plan.path),
                "command": list(plan.command),
                "changed": plan.changed,
                "applied": plan.changed and not dry_run,
                "backup": None if backup is None else str(backup),
                "diff": plan.diff(),
            }
        )
        return
    _show(screen, plan, words, dry_run=dry_run)
    if backup is not None:
        screen.note(f"The old file is kept: {backup}")


def _show(screen: Screen, plan: Plan, words: tuple[str, str], *, dry_run: bool) -> None:
    if not plan.changed:
        screen.show(f"Nothing to do: {escape_text(str(plan.path))} {words[0]}.")
    elif dry_run:
        from sublet.cli.rendering.delegations import diff_text

        screen.out.print(diff_text(plan.diff().removesuffix("\n")), soft_wrap=True)
        screen.note("Nothing was changed.")
    else:
        screen.show(f"{words[1]} {escape_text(str(plan.path))}.")
        screen.note("Restart the host, or let it reload its MCP servers.")
