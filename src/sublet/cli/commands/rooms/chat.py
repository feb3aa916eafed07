"""``sublet chat``: a room in a terminal, live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sublet.cli.options.given_text import at_terminal
from sublet.cli.options.rooms import RoomArgument, resolve_room
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


def chat(ctx: typer.Context, room: RoomArgument) -> None:
    """Talk in a room, live, in this terminal.

    Type and press Enter; /help lists what else can be done. Ctrl-C leaves the view, and the room stays.
    """
    screen = Screen()

    async def body(control: Control) -> None:
        if not at_terminal():
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, "there is no terminal here", "Use `sublet read`, `send` and `watch`."
            )
        room_id = await resolve_room(control, room)
        from sublet.daemon.api.room_fields import OneRoom
        from sublet.daemon.api.rooms import GET_ROOM

        found = await control.call(GET_ROOM, OneRoom(room_id=room_id))
        from sublet.cli.chat.talk import Talk
        from sublet.cli.chat.terminal import ChatScreen
        from sublet.cli.options.entities import load_names

        view: list[ChatScreen] = []

        def changed() -> None:
            for one in view:
                one.changed()

        talk = Talk(control, found, await load_names(control), changed)
        await talk.begin()
        view.append(ChatScreen(talk))
        await view[0].run()

    run(ctx, screen, body)
