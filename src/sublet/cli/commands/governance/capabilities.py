"""Commands about capabilities: list, inspect, verify, run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import Exit
from sublet.cli.help import Sectioned, listing
from sublet.cli.options.given_text import from_stdin
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import leave, run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.text import clean

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

MAX_STDIN_CHARS = 200_000

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Capability, by its id.", show_default=False)]
DirOption = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Look into DIR instead of asking the daemon.", show_default=False),
]

capability = listing("capability", "Programs that agents may use, told one level at a time.")


@capability.command(cls=Sectioned, name="list")
def capability_list(ctx: typer.Context, directory: DirOption = None, as_json: JsonFlag = False) -> None:
    """List the capabilities, and why some can't be used."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.capabilities import LIST_CAPABILITIES
        from sublet.daemon.api.operation import Nothing

        _listed(screen, (await control.call(LIST_CAPABILITIES, Nothing())).model_dump(mode="json"))

    if directory is None:
        run(ctx, screen, body)
        return
    from sublet.supervisor.capabilities.registry import read_capabilities

    found = read_capabilities([directory.absolute()])
    _listed(
        screen,
        {
            "capabilities": [one.module.model_dump(mode="json") for _, one in sorted(found.found.items())],
            "problems": [{"directory": where, "problem": what} for where, what in sorted(found.problems.items())],
            "capabilitySnapshotVersion": found.version,
        },
    )


@capability.command(cls=Sectioned, name="inspect")
def capability_inspect(
    ctx: typer.Context,
    capability_id: IdArgument,
    level: Annotated[
        int,
        typer.Option("--level", metavar="N", min=1, max=3, help="1 what it is, 2 how it is called, 3 its documents."),
    ] = 1,
    budget: Annotated[
        int | None,
        typer.Option("--budget", metavar="TOKENS", min=16, max=50_000, help="About how many tokens it may take."),
    ] = None,
    directory: DirOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one level of a capability, and nothing of the others."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.capabilities import INSPECT_CAPABILITY, InspectCapability

        request = InspectCapability(capability_id=capability_id, level=level, budget=budget)
        found = await control.call(INSPECT_CAPABILITY, request)
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        else:
            screen.show(clean(found.text, len(found.text)))

    async def local() -> None:
        from typing import cast

        from sublet.policy.capabilities.disclosure import disclose
        from sublet.policy.capabilities.module_file import Level
        from sublet.supervisor.capabilities.registry import read_capabilities

        found = read_capabilities([(directory or Path()).absolute()])
        one = found.get(capability_id)
        told = disclose(one.module, one.documents, cast("Level", level), budget)
        if as_json:
            screen.emit(
                {
                    "id": told.id,
                    "level": told.level,
                    "text": told.text,
                    "tokens": told.tokens,
                    "left_out": told.left_out,
                    "capabilitySnapshotVersion": found.version,
                }
            )
        else:
            screen.show(clean(told.text, len(told.text)))

    if directory is None:
        run(ctx, screen, body)
    else:
        leave(screen, local)


@capability.command(cls=Sectioned, name="verify")
def capability_verify(ctx: typer.Context, capability_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Try whether a capability can be used here.

    That it is there, and that its help and its version are as its module says.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> Exit | None:
        from sublet.daemon.api.capabilities import VERIFY_CAPABILITY, VerifyCapability

        found = await control.call(VERIFY_CAPABILITY, VerifyCapability(capability_id=capability_id))
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        else:
            for check in found.checks:
                screen.show(f"{'ok ' if check.ok else 'BAD'} {check.name}: {clean(check.detail)}")
        return None if found.ok else Exit.ERROR

    run(ctx, screen, body)


@capability.command(cls=Sectioned, name="run")
def capability_run(
    ctx: typer.Context,
    capability_id: IdArgument,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGS", help="What it is called with.", show_default=False)
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Give it what is on standard input.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a capability in the sandbox.

    It runs in an empty directory, once policy has allowed it.
    """
    screen = Screen(as_json=as_json)
    text = from_stdin(MAX_STDIN_CHARS - 1, "what the capability is given") if stdin else ""

    async def body(control: Control) -> Exit | None:
        from sublet.daemon.api.capabilities import RUN_CAPABILITY, RunCapability

        request = RunCapability(capability_id=capability_id, args=list(arguments or []), stdin=text)
        found = await control.call(RUN_CAPABILITY, request)
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        else:
            screen.out.print(found.stdout, end="", soft_wrap=True)
            screen.err.print(found.stderr, end="", soft_wrap=True)
            if found.exit_code != 0:
                why = found.reason or f"it ended with status {found.exit_code}"
                screen.note(f"{capability_id}: {clean(why)}")
        return None if found.exit_code == 0 else Exit.ERROR

    run(ctx, screen, body)


def _listed(screen: Screen, found: dict[str, object]) -> None:
    if screen.as_json:
        screen.emit(found)
        return
    from sublet.daemon.api.capabilities import CapabilityProblem, CapabilityView

    views = [CapabilityView.model_validate(one) for one in _objects(found["capabilities"])]
    for view in views:
        off = "" if view.enabled else "  (off)"
        screen.show(f"{view.id}  {view.version}  {clean(view.description)}{off}")
    for problem in [CapabilityProblem.model_validate(one) for one in _objects(found["problems"])]:
        screen.note(f"Not usable: {clean(problem.directory)}: {clean(problem.problem)}")
    if not views:
        screen.note("There are none. See docs/modules.md for how to add one.")


def _objects(value: object) -> list[object]:
    return value if isinstance(value, list) else []
