"""Commands about the daemon itself: up, down, status, doctor."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import Exit, exit_for
from sublet.cli.help import verbatim
from sublet.cli.options.values import JsonFlag, address
from sublet.cli.reaching.connection import leave, run, session_of
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.cli.reaching.serving import UpOptions
    from sublet.daemon.api.daemon import Check, StatusView
    from sublet.daemon.control.client import ControlClient as Control

STOP_SECONDS = 10.0
"""How long ``down`` waits for the daemon's process to end; a clean stop takes less than 5 s."""


class LogLevel(StrEnum):
    """How much the daemon logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


UP_EPILOG = verbatim(
    (
        "Examples",
        """sublet up --detach
sublet up --agent claude
sublet up --agent agent.json --a2a 0.0.0.0:8642
SUBLET_HOME=/tmp/second sublet up --detach --a2a 127.0.0.1:8643""",
    ),
    (
        "Ports",
        """0 is any free one, and so is a default that is taken; `sublet status`
tells the real ones. Peers remember the address: choose a fixed one where
others lend to you. Listening beyond this machine is explicit, and then
encrypted and authenticated.""",
    ),
)


def up(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Start in the background; return when ready.", show_default=False)
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="What this daemon offers: claude, codex, gemini, opencode or shell; or the path of an agent.json.",
        ),
    ] = None,
    a2a: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where peers call. [default: 127.0.0.1:8642]")
    ] = None,
    sftp: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where files are served. [default: port 8622, where A2A is]")
    ] = None,
    web: Annotated[
        str | None, typer.Option(metavar="PORT|off", help="Port of the web page, on 127.0.0.1. [default: 8640]")
    ] = None,
    zenoh: Annotated[
        str | None,
        typer.Option(
            metavar="ENDPOINT",
            help="Where rooms meet: tls/HOST:PORT. [default: port 7447, where A2A is]",
        ),
    ] = None,
    lan: Annotated[
        bool,
        typer.Option("--lan", help="Let other machines reach all three ports, encrypted.", show_default=False),
    ] = False,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="How peers reach the A2A port, if not by its own address.")
    ] = None,
    unsandboxed: Annotated[
        bool,
        typer.Option("--unsandboxed", help="Run agents without bubblewrap: with all your rights.", show_default=False),
    ] = False,
    relay: Annotated[
        str | None,
        typer.Option(metavar="tls/HOST:PORT", help="The relay that carries rooms to daemons that can't be reached."),
    ] = None,
    relay_ca: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="By which the relay is known. [default: the system's authorities]"),
    ] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="How much to log. [default: info]")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Start the daemon."""
    for name, value in (("--a2a", a2a), ("--sftp", sftp)):
        if value is not None:
            _checked(name, value)
    from sublet.cli.reaching.serving import UpOptions

    screen = Screen(as_json=as_json)
    options = UpOptions(
        agent=None if agent is None else _agent_file(agent),
        a2a=a2a,
        sftp=sftp,
        web=web,
        zenoh=zenoh,
        lan=lan,
        public_url=public_url,
        unsandboxed=unsandboxed,
        log_level=None if log_level is None else log_level.value,
        relay=relay,
        relay_ca=None if relay_ca is None else str(Path(relay_ca).absolute()),
    )
    if detach:
        _detached(screen, options)
    else:
        _foreground(screen, options)


def down(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Stop the daemon and wait until it is gone. That none runs is no error."""
    screen = Screen(as_json=as_json)
    session = session_of(ctx)

    async def stop() -> int | None:
        from sublet.daemon.api.daemon import SHOW_STATUS, STOP
        from sublet.daemon.api.operation import Nothing

        try:
            async with session.connect() as control:
                pid = (await control.call(SHOW_STATUS, Nothing())).pid
                handle = _pidfd(pid)
                await control.call(STOP, Nothing())
        except SubletError as error:
            if error.code != LocalCode.DAEMON_UNAVAILABLE:
                raise
            if (owner := session.owner()) is None or (handle := _pidfd(owner)) is None:
                return None
            pid = owner  # it holds the lock but does not answer
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            signal.pidfd_send_signal(handle, signal.SIGCONT)  # a process that is stopped would never hear the first
        if handle is not None:
            try:
                await asyncio.to_thread(_wait_gone, handle, pid)
            finally:
                os.close(handle)
        return pid

    pid = leave(screen, stop)
    if as_json:
        screen.emit({"stopped": pid is not None, "pid": pid})
    else:
        screen.show("No daemon is running." if pid is None else f"Stopped (pid {pid}).")


def status(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Show the daemon at a glance."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.daemon import SHOW_STATUS
        from sublet.daemon.api.operation import Nothing

        _show_status(await control.call(SHOW_STATUS, Nothing()), screen)

    run(ctx, screen, body)


def doctor(
    ctx: typer.Context,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Make damaged databases anew from what can be read.", show_default=False),
    ] = False,
    own_home: Annotated[
        bool,
        typer.Option("--own-home", help="Make a copied home a daemon of its own.", show_default=False),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check what this machine has and lacks, and say how to mend it. Works with and without a daemon.

    With --repair or --own-home no daemon may run: sublet down.
    """
    screen = Screen(as_json=as_json)
    session = session_of(ctx)
    if repair or own_home:
        done = leave(screen, lambda: _repaired(repair=repair, own_home=own_home))
        _show_checks(screen, done, running=False)
        return

    async def ask() -> tuple[bool, list[Check]]:
        from sublet.daemon.api.daemon import RUN_DOCTOR
        from sublet.daemon.api.operation import Nothing

        try:
            async with session.connect() as control:
                return True, await control.call(RUN_DOCTOR, Nothing())
        except SubletError as error:
            if error.code != LocalCode.DAEMON_UNAVAILABLE:
                raise
            silent = [] if session.owner() is None else [_silent(error)]
            return bool(silent), [*silent, *await _local_checks()]

    running, checks = leave(screen, ask)
    _show_checks(screen, checks, running=running)
    if not running and not as_json:
        screen.note("No daemon is running, so only the machine was checked. Start one: sublet up --detach")
    if not all(check.ok for check in checks):
        raise typer.Exit(Exit.ERROR)


def _show_checks(screen: Screen, checks: list[Check], *, running: bool) -> None:
    if screen.as_json:
        healthy = all(check.ok for check in checks)
        body = {"ok": healthy, "daemon": running, "checks": [check.model_dump(mode="json") for check in checks]}
        screen.emit(body)
        return
    from sublet.cli.rendering.peers import check_lines

    screen.show(check_lines(checks, screen.symbols))


async def _repaired(*, repair: bool, own_home: bool) -> list[Check]:
    """Mend what is damaged where no daemon runs, and return what became of it."""
    from sublet.app.stores import FACE_STORES
    from sublet.daemon.config.paths import resolve_home
    from sublet.daemon.health import repair as mending
    from sublet.daemon.logs.logging import configure_logging

    configure_logging("error")  # what was done is told by what is printed
    home = resolve_home()
    done = [await asyncio.to_thread(mending.own_home, home)] if own_home else []
    return [*done, *(await asyncio.to_thread(mending.repair, home, FACE_STORES) if repair else [])]


def _detached(screen: Screen, options: UpOptions) -> None:
    from sublet.cli.reaching.detach import start
    from sublet.cli.reaching.start_report import log_path
    from sublet.daemon.config.paths import resolve_home

    home = resolve_home()
    try:
        status = start(options.arguments(), home)
    except SubletError as error:
        screen.fail(error)
        raise typer.Exit(exit_for(str(error.code))) from None
    _show_status(status, screen)
    screen.note(f"Log: {log_path(home)}")


def _foreground(screen: Screen, options: UpOptions) -> None:
    """Run the daemon in this process until it is stopped."""
    from sublet.cli.reaching.serving import serve
    from sublet.cli.reaching.start_report import Reporter

    def ready(status: StatusView) -> None:
        _show_status(status, screen)

    leave(screen, lambda: serve(options, Reporter(None), ready))


def _show_status(status: StatusView, screen: Screen) -> None:
    if screen.as_json:
        screen.emit(status.model_dump(mode="json"))
        return
    from sublet.cli.rendering.peers import status_details

    screen.show(status_details(status, screen.symbols))


def reload(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Read agent.json and policy.json anew, without a restart.

    Work that runs goes on as it began. Where a file is bad, what held before goes on to hold.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.daemon import RELOAD
        from sublet.daemon.api.operation import Nothing

        report = await control.call(RELOAD, Nothing())
        if as_json:
            screen.emit(report.model_dump(mode="json"))
            return
        for file in (report.agent_file, report.policy_file):
            screen.show(_read_or_missing(file))
        screen.show(f"Offered: {', '.join(report.agents) or 'no agent'}.")

    run(ctx, screen, body)


def _read_or_missing(file: str) -> str:
    return f"Read {file}." if Path(file).exists() else f"There is no {file}."


def _silent(error: SubletError) -> Check:
    """Tell of a daemon that runs and gives no answer."""
    from sublet.daemon.api.daemon import Check

    return Check(name="daemon", ok=False, detail=error.message, fix=error.hint, required_for="everything")


async def _local_checks() -> list[Check]:
    """Check this machine alone, as the daemon would."""
    from sublet.app.stores import FACE_STORES
    from sublet.daemon.config.paths import resolve_home
    from sublet.daemon.health.diagnosis import diagnose

    return await diagnose(resolve_home(), FACE_STORES, running=False)


def _agent_file(given: str) -> str:
    """Return the path of the agents that are meant: one of the words, or else a file.

    Raises:
        typer.BadParameter: there is no such word and no such file.
    """
    from sublet.cli.options.known_agents import known_agent
    from sublet.supervisor.well_known.catalogue import WELL_KNOWN

    path = Path(given)
    if given in WELL_KNOWN or not path.is_file():
        return str(WELL_KNOWN[known_agent(given, or_file=True)])
    return str(path.absolute())


def _checked(name: str, value: str) -> None:
    try:
        address(value)
    except typer.BadParameter as error:
        raise typer.BadParameter(str(error), param_hint=name) from None


def _pidfd(pid: int) -> int | None:
    """Return a handle of the process that no later process of the same number can be taken for."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _wait_gone(handle: int, pid: int) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(STOP_SECONDS * 1000):
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"the daemon (pid {pid}) was told to stop, but is still there after {STOP_SECONDS:.0f} s",
            f"See its log, and if need be: kill {pid}",
        )
