"""The command line: its commands, and the net under them that lets no traceback reach a user."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from sublet.cli.command_table import Everything
from sublet.cli.dashes import takes_text
from sublet.cli.errors import MEANING, Exit, exit_for
from sublet.cli.help import group, verbatim
from sublet.cli.options.given_text import check_arguments
from sublet.cli.reaching.connection import Session, session_of
from sublet.cli.rendering.screen import Screen
from sublet.cli.rendering.version import own_version
from sublet.cli.standard_streams import OutputLost, drop_output
from sublet.protocol.errors import LocalCode, SubletError

NO_OPTION: Final = "No such option"
"""How typer's message of an unknown option begins."""

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
    cls=Everything,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(own_version())
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
    try:
        return _run(argv, session)
    except OutputLost as error:  # also from what would have told of another error there
        drop_output()
        return _output_lost(error)


def _run(argv: Sequence[str] | None, session: Session | None) -> int:
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
    except OutputLost:
        raise
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
    hint = f"See `{path} --help`."
    if message.startswith(NO_OPTION) and ctx is not None and takes_text(ctx.command):
        hint += " Where it is a text, write -- before it."
    screen.fail(SubletError(LocalCode.INVALID_ARGUMENT, message, hint))
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
    from sublet.cli.reaching.start_report import log_path
    from sublet.daemon.config.paths import resolve_home

    return log_path(resolve_home())


def _output_lost(error: OSError) -> int:
    """Say on standard error, whatever the form, that standard output takes nothing."""
    Screen(as_json=False).fail(
        SubletError(
            LocalCode.UNAVAILABLE,
            f"the output could not be written: {error.strerror or error}",
            "What the command does was done, or goes on. Make space, or send the output elsewhere.",
        )
    )
    return Exit.ERROR


def _reader_gone() -> int:
    drop_output()
    return Exit.BROKEN_PIPE
