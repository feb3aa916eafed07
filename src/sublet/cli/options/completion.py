"""What a shell is offered for delegations, peers and rooms; whatever goes wrong, it is offered nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

COMPLETION_SECONDS = 0.5
"""A shell waits no longer for completions."""


def complete_delegation(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return delegation ids for the shell, with what they are about."""

    async def ask(control: Control) -> list[tuple[str, str]]:
        from sublet.daemon.api.delegation_fields import ListNewest
        from sublet.daemon.api.delegations import LIST_DELEGATIONS

        views = await control.call(LIST_DELEGATIONS, ListNewest(limit=50))
        return [(view.delegation_id, f"{view.state} {view.peer}: {view.description[:40]}") for view in views]

    return [entry for entry in _quietly(ctx, ask) if entry[0].startswith(incomplete)]


def complete_peer(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return peer names for the shell."""

    async def ask(control: Control) -> list[tuple[str, str]]:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.peers import LIST_PEERS

        return [(peer.name, peer.a2a_url or "") for peer in await control.call(LIST_PEERS, Nothing())]

    return [entry for entry in _quietly(ctx, ask) if entry[0].startswith(incomplete)]


def complete_room(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of rooms for the shell."""

    async def ask(control: Control) -> list[tuple[str, str]]:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.rooms import LIST_ROOMS

        return [(room.name, room.room_id) for room in await control.call(LIST_ROOMS, Nothing())]

    return [entry for entry in _quietly(ctx, ask) if entry[0].startswith(incomplete)]


def _quietly(ctx: typer.Context, ask: object) -> list[tuple[str, str]]:
    """Ask the daemon within what a shell may wait; whatever goes wrong, there are just no completions."""
    import asyncio
    from collections.abc import Awaitable, Callable
    from typing import cast

    from sublet import deadlines
    from sublet.cli.reaching.connection import session_of

    question = cast("Callable[[Control], Awaitable[list[tuple[str, str]]]]", ask)

    async def main() -> list[tuple[str, str]]:
        async with deadlines.timeout(COMPLETION_SECONDS), session_of(ctx).connect() as control:
            return await question(control)

    try:
        return asyncio.run(main())
    except Exception:  # a shell in the middle of a line must not be told why
        return []
