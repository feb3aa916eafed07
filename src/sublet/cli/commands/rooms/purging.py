"""``sublet room purge``: a message, or its files, removed from every member for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.commands.rooms.invitations import rooms as room_commands
from sublet.cli.commands.rooms.rooms import ABOUT
from sublet.cli.help import Sectioned
from sublet.cli.options.rooms import RefArgument, RoomArgument, resolve_ref, resolve_room
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


@room_commands.command(cls=Sectioned, name="purge", rich_help_panel=ABOUT)
def room_purge(
    ctx: typer.Context,
    room: RoomArgument,
    ref: RefArgument,
    file: Annotated[bool, typer.Option("--file", help="Only the files that it came with.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove a message for good: yours, or any as an owner.

    It goes from the disk of every member, with all its versions and files, and does not come back; who is away loses it
    once they are reached. That can't be undone. `sublet redact` takes a message down and keeps it.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_marks import PURGE_MESSAGE, PurgeMessage

        room_id = await resolve_room(control, room)
        ref_id = await resolve_ref(control, room_id, ref)
        done = await control.call(PURGE_MESSAGE, PurgeMessage(room_id=room_id, ref_id=ref_id, files=file))
        if as_json:
            screen.emit(done.model_dump(mode="json"))
            return
        screen.show("Purged." if done.changed else "It was purged already.")
        if done.kept_files:
            screen.note(
                f"{len(done.kept_files)} of its files stay, since other messages of the room come with them: "
                "they go with the last of those."
            )

    run(ctx, screen, body)


rooms = room_commands
"""``sublet room`` with this command too."""
