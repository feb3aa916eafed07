"""Commands about nodes: who of the paired daemons takes part in federation, and how it stands with each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


def nodes(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List this node and the others, and how it stands with each.

    A node is a daemon whose agents can be asked from here: sublet ask "@AGENT@NODE …".
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.federation import LIST_NODES
        from sublet.daemon.api.operation import Nothing

        found = await control.call(LIST_NODES, Nothing())
        if as_json:
            screen.emit([one.model_dump(mode="json") for one in found])
            return
        from sublet.cli.rendering.nodes import node_table

        screen.show(node_table(found))
        for one in found:
            if one.why_not:
                screen.note(f"{one.peer or one.node_id or 'a node'}: {one.why_not}")
        if len(found) == 1:
            screen.note("No other node is known. Pair with one: sublet pair there, sublet peers add LINK here")

    run(ctx, screen, body)
