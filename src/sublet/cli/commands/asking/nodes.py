"""Commands about nodes: who of the paired daemons takes part in federation, and how it stands with each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import Exit
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.cli.rendering.words import count
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


def nodes(
    ctx: typer.Context,
    say: Annotated[
        str | None, typer.Option("--say", metavar="TEXT", help="Say it to all nodes that are there.")
    ] = None,
    messages: Annotated[
        bool, typer.Option("--messages", help="Show what was said to all.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List this node and the others, and how it stands with each.

    A node is a daemon whose agents can be asked from here: sublet ask "@AGENT@NODE …".
    """
    if say is not None and messages:
        raise typer.BadParameter("--say sends, --messages reads: give one of the two")
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> Exit | None:
        if say is not None:
            return await _say(control, screen, say)
        if messages:
            await _messages(control, screen)
        else:
            await _list(control, screen)
        return None

    run(ctx, screen, body)


async def _say(control: Control, screen: Screen, text: str) -> Exit | None:
    from sublet.daemon.api.federation import BROADCAST, MAX_BROADCAST_CHARS, Broadcast

    if not 0 < len(text) <= MAX_BROADCAST_CHARS:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"--say takes 1 to {MAX_BROADCAST_CHARS:,} characters")
    sent = await control.call(BROADCAST, Broadcast(text=text))
    heard = [one for one in sent.heard if not one.why_not]
    if screen.as_json:
        screen.emit(sent.model_dump(mode="json"))
    else:
        screen.show(f"{count(len(heard), 'node')} heard it.")
        for one in sent.heard:
            if one.why_not:
                screen.note(f"{one.peer} did not: {one.why_not}")
    return None if heard else Exit.ERROR


async def _messages(control: Control, screen: Screen) -> None:
    from sublet.daemon.api.federation import LIST_BROADCASTS, MAX_BROADCAST_CHARS, ListBroadcasts

    found = await control.call(LIST_BROADCASTS, ListBroadcasts())
    if screen.as_json:
        screen.emit([one.model_dump(mode="json") for one in found])
        return
    from sublet.cli.rendering.columns import Quoted
    from sublet.cli.rendering.delegations import local_time
    from sublet.cli.rendering.words import whole_line

    for one in found:
        kind = "" if one.message_type == "announcement" else f" ({whole_line(one.message_type)})"
        screen.out.print(f"{local_time(one.at)}  {whole_line(one.from_agent)}{kind}", highlight=False, markup=False)
        for line in clean(one.text, MAX_BROADCAST_CHARS).splitlines():
            screen.out.print(Quoted(line, f"  {screen.symbols.bar} "))
    if not found:
        screen.note("Nothing was said to all yet.")


async def _list(control: Control, screen: Screen) -> None:
    from sublet.daemon.api.federation import LIST_NODES
    from sublet.daemon.api.operation import Nothing

    found = await control.call(LIST_NODES, Nothing())
    if screen.as_json:
        screen.emit([one.model_dump(mode="json") for one in found])
        return
    from sublet.cli.rendering.nodes import node_table

    screen.show(node_table(found))
    for one in found:
        if one.why_not:
            screen.note(f"{one.peer or one.node_id or 'a node'}: {one.why_not}")
    if len(found) == 1:
        screen.note("No other node is known. Pair with one: sublet pair there, sublet peers add LINK here")
