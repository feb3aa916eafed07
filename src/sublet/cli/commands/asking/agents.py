"""Commands about the agents of this daemon: list, add."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.help import Sectioned, listing
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import leave, run, session_of
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.api.daemon import ReloadReport
    from sublet.daemon.control.client import ControlClient as Control

agents = listing("agents", "The agents of this daemon, and what each can do.")


@agents.command(cls=Sectioned, name="list")
def agents_list(
    ctx: typer.Context,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Those of all nodes, with their addresses.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the agents of this daemon, and what each can do."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        if everywhere:
            await _everywhere(control, screen)
            return
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.sessions import LIST_AGENTS

        found = await control.call(LIST_AGENTS, Nothing())
        if as_json:
            screen.emit(found.model_dump(mode="json", by_alias=True))
        elif found.agents:
            from sublet.cli.rendering.sessions import agent_table

            screen.show(agent_table(found.agents))
        else:
            screen.note("No agent is offered here. Offer one: sublet agents add claude")

    run(ctx, screen, body)


async def _everywhere(control: Control, screen: Screen) -> None:
    from sublet.daemon.api.federation import LIST_ALL_AGENTS
    from sublet.daemon.api.operation import Nothing

    found = await control.call(LIST_ALL_AGENTS, Nothing())
    if screen.as_json:
        screen.emit([one.model_dump(mode="json") for one in found])
    elif found:
        from sublet.cli.rendering.nodes import everywhere_table

        screen.show(everywhere_table(found))
    else:
        screen.note("No node has an agent. See: sublet nodes")


@agents.command(cls=Sectioned, name="add")
def agents_add(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="claude, codex, gemini, opencode or shell.", show_default=False)
    ],
    agent_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Offer it under this name. [default: NAME]")
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="Make it the one that is asked where none is named.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Offer a well-known agent, and say what it lacks here.

    It is added to the agent.json of this user; a daemon that runs offers it at once.
    """
    screen = Screen(as_json=as_json)
    session = session_of(ctx)

    async def add() -> None:
        from sublet.cli.options.known_agents import known_agent
        from sublet.daemon.config.paths import resolve_home
        from sublet.supervisor.prompt_kind import prompt_kind
        from sublet.supervisor.readiness import lacks
        from sublet.supervisor.well_known.adding import add_agent

        chosen = known_agent(name)
        file = Path(resolve_home().config_dir) / "agent.json"
        config = add_agent(file, chosen, agent_id or chosen, default=default)
        report: ReloadReport | None = None
        try:
            async with session.connect() as control:
                from sublet.daemon.api.daemon import RELOAD
                from sublet.daemon.api.operation import Nothing

                report = await control.call(RELOAD, Nothing())
        except SubletError as error:
            if error.code != LocalCode.DAEMON_UNAVAILABLE:
                raise
        missing = lacks(config)
        offered = report is not None and config.id in report.agents
        if as_json:
            screen.emit(
                {
                    "agent": config.id,
                    "file": str(file),
                    "offered": offered,
                    "takes": prompt_kind(config),
                    "lacks": [{"what": lack.what, "remedy": lack.remedy} for lack in missing],
                }
            )
            return
        screen.show(f"Added {config.id} to {file}. It takes {_MEANING[prompt_kind(config)]}.")
        for lack in missing:
            screen.note(f"It can't work yet: {lack}")
        if report is None:
            screen.note("No daemon is running. Start one: sublet up --detach")
        elif not offered:
            screen.note(
                f"The daemon reads {report.agent_file}. Start it without --agent: sublet down; sublet up --detach"
            )

    leave(screen, add)


_MEANING = {"prose": "a task in plain words", "script": "a script, not prose", "anything": "what its program takes"}
