"""The command line: its commands, and the net under them that lets no traceback reach a user."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from sublet.cli import (
    approvals_cmds,
    approver_cmds,
    ask_cmds,
    attach_cmd,
    audit_cmds,
    capability_cmds,
    chat_cmd,
    config_cmds,
    daemon_cmd,
    delegate_cmd,
    events_cmd,
    gateway_cmds,
    grants_cmds,
    lease_cmds,
    mark_cmds,
    mcp_cmd,
    message_cmds,
    peers_cmd,
    people_cmds,
    policy_cmds,
    presence_cmds,
    prune_cmd,
    receipts_cmd,
    replay_cmd,
    review_cmds,
    room_member_cmds,
    sessions_cmds,
    steer_cmds,
    text_cmds,
    watch_cmds,
    web_cmd,
)
from sublet.cli.connection import Session, session_of
from sublet.cli.errors import MEANING, Exit, exit_for
from sublet.cli.given_text import check_arguments
from sublet.cli.help import Sectioned, group, verbatim
from sublet.cli.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

app = group(
    "sublet",
    "Lend a directory to another agent for a limited time, and stay in charge of what it may do.",
    verbatim(
        (
            "First steps",
            """sublet up --detach
sublet peers add LINK --name bob     LINK: what `sublet pair` says there
sublet delegate . --to bob "Make the tests pass.\"""",
        ),
        ("Exit statuses", "\n".join(f"{status.value:>3}  {meaning}" for status, meaning in MEANING.items())),
    ),
)


def _add(panel: str, *commands: Callable[..., None], epilog: str | None = None) -> None:
    for command in commands:
        app.command(cls=Sectioned, rich_help_panel=panel, epilog=epilog)(command)


_add("Daemon", daemon_cmd.up, epilog=daemon_cmd.UP_EPILOG)
_add("Daemon", daemon_cmd.down, daemon_cmd.status, lease_cmds.work, daemon_cmd.reload, daemon_cmd.doctor)
app.add_typer(config_cmds.config, rich_help_panel="Daemon")
_add("Daemon", web_cmd.web)
_add("Peers", peers_cmd.pair)
app.add_typer(peers_cmd.peers, rich_help_panel="Peers")
app.add_typer(peers_cmd.token, rich_help_panel="Peers")
_add("Peers", peers_cmd.allow)
_add("Lending", delegate_cmd.delegate, epilog=delegate_cmd.EPILOG)
_add("Lending", lease_cmds.ls, attach_cmd.attach, lease_cmds.output)
_add("Lending", steer_cmds.say, steer_cmds.extend, lease_cmds.cancel)
_add("Results", lease_cmds.diff)
app.add_typer(audit_cmds.audit, rich_help_panel="Results")
_add("Results", review_cmds.review, review_cmds.apply, review_cmds.undo, review_cmds.discard, prune_cmd.prune)
_add("Asking", ask_cmds.ask, epilog=ask_cmds.EPILOG)
_add("Asking", ask_cmds.answer, ask_cmds.agents)
app.add_typer(sessions_cmds.sessions, rich_help_panel="Asking")
_add("Rooms", chat_cmd.chat, message_cmds.whoami)
app.add_typer(room_member_cmds.rooms, rich_help_panel="Rooms")
_add("Rooms", message_cmds.send, message_cmds.read, receipts_cmd.receipts)
_add("Rooms", message_cmds.thread, message_cmds.channels)
app.add_typer(watch_cmds.watch, rich_help_panel="Rooms")
_add("Rooms", presence_cmds.presence, presence_cmds.drafts, people_cmds.search, people_cmds.profile)
_add("Messages", mark_cmds.react, mark_cmds.edit, mark_cmds.delete, mark_cmds.redact, mark_cmds.pin, mark_cmds.unpin)
app.add_typer(text_cmds.text, rich_help_panel="Messages")
app.add_typer(capability_cmds.capability, rich_help_panel="Governance")
app.add_typer(gateway_cmds.gateway, rich_help_panel="Governance")
app.add_typer(policy_cmds.policy, rich_help_panel="Governance")
app.add_typer(approvals_cmds.approvals, rich_help_panel="Approving")
app.add_typer(grants_cmds.grants, rich_help_panel="Approving")
app.add_typer(approver_cmds.approver, rich_help_panel="Approving")
_add("Governance", events_cmd.events, epilog=events_cmd.EPILOG)
_add("Governance", replay_cmd.replay)
app.add_typer(mcp_cmd.mcp, rich_help_panel="MCP hosts")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"sublet {version('sublet')}")
        raise typer.Exit


@app.callback()
def _main(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version.", show_default=False),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of internal errors.", show_default=False)
    ] = False,
) -> None:
    session_of(ctx).debug = debug


def run(argv: Sequence[str] | None = None, *, session: Session | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        argv: arguments without the program's name; those of the process by default.
        session: how the daemon is reached; by its control socket by default.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal's encoding can't say is written out, never a crash
            stream.reconfigure(errors="backslashreplace")
    screen = Screen(as_json="--json" in arguments)
    try:
        check_arguments(arguments)
        status = app(args=arguments, prog_name="sublet", standalone_mode=False, obj=session or Session())
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except typer.Abort:
        return Exit.INTERRUPTED
    except typer.TyperException as error:
        return _wrong_use(error, screen)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # typer turns it into a plain failure
            return _reader_gone()
        return error.code if isinstance(error.code, int) else Exit.OK
    except Exception as error:
        return _broken(error, screen, debug="--debug" in arguments)
    return status if isinstance(status, int) else Exit.OK


def _wrong_use(error: typer.TyperException, screen: Screen) -> int:
    message = error.format_message().replace(": Value error, ", ": ")  # pydantic's words, not ours
    if message.startswith("Usage:") and not screen.as_json:  # a group without a command: the message is its help
        sys.stderr.write(message + "\n")
        return Exit.USAGE
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx is not None else "sublet"
    screen.fail(SubletError(LocalCode.INVALID_ARGUMENT, message, f"See `{path} --help`."))
    return Exit.USAGE


def _broken(error: Exception, screen: Screen, *, debug: bool) -> int:
    """Say that we are at fault, and where more is known."""
    if debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, SubletError):
        screen.fail(error)
        return exit_for(str(error.code))
    screen.fail(
        SubletError(
            LocalCode.INTERNAL,
            f"an internal error of the command line: {type(error).__name__}: {error}",
            f"Run it again as `sublet --debug …` to see where. The daemon's log: {_log_path()}",
        )
    )
    return Exit.ERROR


def _log_path() -> str:
    from sublet.cli.detach import log_path
    from sublet.daemon.paths import resolve_home

    return log_path(resolve_home())


def _reader_gone() -> int:
    # stdout is replaced, so that the interpreter's own flush at exit has nothing to complain about
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.BROKEN_PIPE
