"""``sublet watch``: what happens in rooms, and watches on messages and channels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from sublet.cli.help import Defaulting, Sectioned, group
from sublet.cli.options.rooms import RoomArgument, resolve_ref, resolve_room
from sublet.cli.options.values import JsonFlag, typed, wrong_value
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import SubletError

if TYPE_CHECKING:
    from sublet.daemon.api.room_news import Watches
    from sublet.daemon.control.client import ControlClient as Control

SHOWN = frozenset({"message.new", "message.edited"})
"""Events that are printed with what the message says."""

watch = group(
    "watch",
    "What happens in rooms.\n\n"
    "`sublet watch [ROOM] --since CURSOR --wait S` prints what has happened; it is `sublet watch events`. The other "
    "commands are for being told of more: answers to a message, its edits, or what is said in channels.",
    invoke_without_command=True,
    cls=Defaulting,
)


@watch.command(cls=Sectioned, name="events")
def watch_events(
    ctx: typer.Context,
    room: Annotated[
        str | None, typer.Argument(metavar="ROOM", help="Its id or its name; all of yours.", show_default=False)
    ] = None,
    since: Annotated[
        int | None,
        typer.Option("--since", metavar="CURSOR", min=0, help="All that came after it, 0 for all.", show_default=False),
    ] = None,
    peek: Annotated[bool, typer.Option("--peek", help="Show it again the next time.", show_default=False)] = False,
    wait: Annotated[
        float, typer.Option("--wait", metavar="S", min=0, help="Seconds to wait where there is nothing.")
    ] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Print what others have done in your rooms.

    Nothing is lost while nobody watches: it comes first the next time. With --since it is everything after a cursor,
    your own doings too, and the next time is as if it had not been. It ends with the cursor to go on with.
    """
    if peek and since is not None:
        raise typer.BadParameter("--since receives nothing anyway: leave --peek out")
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.base import MAX_WAIT_SECONDS
        from sublet.daemon.api.room_news import WATCH_ROOMS, WatchRooms

        room_id = await resolve_room(control, room) if room is not None else None
        until, cursor = time.monotonic() + wait, since
        while True:
            left = max(until - time.monotonic(), 0)
            request = WatchRooms(since=cursor, wait=min(left, MAX_WAIT_SECONDS), room_id=room_id)
            found = await control.call(WATCH_ROOMS, request)
            if found.events or left <= MAX_WAIT_SECONDS:
                break
            cursor = found.cursor if since is not None else None
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        else:
            from sublet.cli.options.entities import load_names
            from sublet.cli.rendering.rooms import room_name
            from sublet.cli.rendering.words import whole_line

            names, called = await load_names(control), await _called(control)
            for event in found.events:
                by = next((str(event[key]) for key in ("author", "by", "entity", "watcher") if event.get(key)), "")
                about = next((str(event[key]) for key in ("new_ref_id", "ref_id", "target_ref") if event.get(key)), "")
                who = names.short(by) if by else ""
                in_room = str(event["room_id"])
                where = room_name(called.get(in_room) or in_room, names)
                what = " ".join(str(event[key]) for key in ("action", "emoji", "channel", "reason") if event.get(key))
                line = f"{event['cursor']}  {where}  {who}  {event['kind']}  {what}  {about}"
                screen.show(whole_line(line))
                if event["kind"] in SHOWN and about:
                    await _show_message(control, screen, in_room, about)
            if found.missed:
                screen.note("More had happened than is kept: read the rooms with sublet read.")
            screen.note(f"Go on with --since {found.cursor}")
        if since is None and not peek:  # printed, so that it is received
            heard = WatchRooms(since=found.cursor, acknowledge=found.cursor, room_id=room_id)
            await control.call(WATCH_ROOMS, heard)

    run(ctx, screen, body)


_OF_A_MESSAGE = ("edits", "replies", "threads", "reactions")


@watch.command(cls=Sectioned, name="set")
def watch_set(
    ctx: typer.Context,
    room: RoomArgument,
    ref: Annotated[str | None, typer.Argument(metavar="REF", help="A message, or `last`.", show_default=False)] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option("--channel", metavar="NAME", help="A channel; can be repeated.", show_default=False),
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="Channels of this room alone.", show_default=False)] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for others to read.", show_default=False)
    ] = "",
    edits: Annotated[bool, typer.Option("--edits/--no-edits", help="Tell of edits of the message.")] = True,
    replies: Annotated[bool, typer.Option("--replies/--no-replies", help="Tell of answers to it.")] = True,
    threads: Annotated[bool, typer.Option("--threads/--no-threads", help="Tell of what comes in its thread.")] = True,
    reactions: Annotated[bool, typer.Option("--reactions/--no-reactions", help="Tell of reactions to it.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Watch a message, or channels.

    A watch that is there already is replaced.
    """
    screen = Screen(as_json=as_json)
    if (ref is None) == (not channel):
        raise typer.BadParameter("give a message, or --channel")
    if ref is None and (idle := [name for name in _OF_A_MESSAGE if typed(ctx, name)]):
        raise typer.BadParameter(f"--{idle[0]} is of a message, not of channels")
    if ref is not None and here:
        raise typer.BadParameter("--here is of channels, not of a message")

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_news import SET_WATCH, SetWatch

        room_id = await resolve_room(control, room)
        given: dict[str, Any] = {"room": room_id, "channels": channel or [], "this_room_only": here, "reason": reason}
        if ref is not None:
            flags = {"on_content_edit": edits, "on_reply": replies, "on_thread": threads, "on_reaction": reactions}
            given |= {"ref_id": await resolve_ref(control, room_id, ref), **flags}
        try:
            request = SetWatch.model_validate(given)
        except ValidationError as error:
            raise wrong_value(error, {"reason": "--reason", "channels": "--channel"}) from None
        await _show(control, screen, await control.call(SET_WATCH, request))

    run(ctx, screen, body)


@watch.command(cls=Sectioned, name="list")
def watch_list(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List your watches."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.room_news import LIST_WATCHES

        await _show(control, screen, await control.call(LIST_WATCHES, Nothing()))

    run(ctx, screen, body)


@watch.command(cls=Sectioned, name="unset")
def watch_unset(
    ctx: typer.Context,
    room: RoomArgument,
    ref: Annotated[
        str | None,
        typer.Argument(metavar="REF", help="A message; without one, your watch on channels.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """End a watch."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_news import UNSET_WATCH, UnsetWatch

        room_id = await resolve_room(control, room)
        ref_id = None if ref is None else await resolve_ref(control, room_id, ref)
        await _show(control, screen, await control.call(UNSET_WATCH, UnsetWatch(room=room_id, ref_id=ref_id)))

    run(ctx, screen, body)


async def _show_message(control: Control, screen: Screen, room_id: str, ref_id: str) -> None:
    """Print what a message says, unless it is gone by now."""
    from sublet.cli.rendering.columns import Quoted
    from sublet.cli.rendering.rooms import attached, said
    from sublet.daemon.api.room_fields import OneMessage
    from sublet.daemon.api.room_marks import GET_MESSAGE

    try:
        one = await control.call(GET_MESSAGE, OneMessage(room_id=room_id, ref_id=ref_id))
    except SubletError:
        return
    screen.show(Quoted("\n".join(filter(None, (said(one), attached(one)))), f"{screen.symbols.bar} "))


async def _called(control: Control) -> dict[str, str]:
    from sublet.daemon.api.operation import Nothing
    from sublet.daemon.api.rooms import LIST_ROOMS

    return {one.room_id: one.name for one in await control.call(LIST_ROOMS, Nothing())}


async def _show(control: Control, screen: Screen, found: Watches) -> None:
    if screen.as_json:
        screen.emit(found.model_dump(mode="json"))
        return
    from sublet.cli.options.entities import load_names
    from sublet.cli.rendering.rooms import room_name
    from sublet.cli.rendering.words import whole_line

    names, called = await load_names(control), await _called(control)

    def where(room_id: str) -> str:
        return room_name(called.get(room_id) or room_id, names)

    if found.removed is not None:
        screen.show("Ended." if found.removed else "There was no such watch.")
    for ref in found.refs:
        flags = {
            "edits": ref.on_content_edit,
            "replies": ref.on_reply,
            "thread": ref.on_thread,
            "reactions": ref.on_reaction,
        }
        told = ", ".join(name for name, on in flags.items() if on)
        screen.show(whole_line(f"{where(ref.room_id)}  {ref.ref_id}  {told}  {ref.reason}"))
    for one in found.channels:
        channels = " ".join(f"#{name}" for name in one.channels)
        screen.show(whole_line(f"{where(one.room_id)}  {channels}  ({one.scope})"))
    if not found.refs and not found.channels and found.removed is None:
        screen.show("No watches. Put one: sublet watch set ROOM REF")
