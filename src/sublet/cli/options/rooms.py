"""Rooms and messages as they are named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sublet.cli.options.completion import complete_room
from sublet.cli.options.given_text import STDIN, from_stdin
from sublet.cli.rendering.words import DELETED
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import is_ref_id, is_room_id
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.api.room_messages import MessageView
    from sublet.daemon.control.client import ControlClient as Control

MAX_NAME_CHARS = 100
MAX_TEXT_CHARS: Final = 65_536
LAST: Final = "last"
MIN_END_CHARS: Final = 3
LOOKED_THROUGH: Final = 200

RoomArgument = Annotated[
    str,
    typer.Argument(
        metavar="ROOM",
        help="Its id, its name, or whom it is with: a peer, AGENT@PEER or @ENTITY.",
        show_default=False,
        autocompletion=complete_room,
    ),
]
RefArgument = Annotated[
    str,
    typer.Argument(metavar="REF", help="The message: its id, the end of it, or `last`.", show_default=False),
]
EntityArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY", help="As `sublet whoami` says there, a peer's name, or AGENT@PEER.", show_default=False
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="FORMAT", help="How the text is meant: plain, markdown, html.", show_default=False
    ),
]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, for the others to read.", show_default=False)
]


async def resolve_room(control: Control, given: str, *, open_one: bool = False) -> str:
    """Return the id of the room that ``given`` names.

    Args:
        control: the daemon.
        given: an id, a name, or whom a conversation of two is with.
        open_one: whether such a conversation is opened where there is none.

    Raises:
        SubletError: ``NOT_FOUND`` for none, ``INVALID_ARGUMENT`` for a name of several.
    """
    if is_room_id(given):
        return given
    from sublet.daemon.api.operation import Nothing
    from sublet.daemon.api.rooms import LIST_ROOMS

    fitting = [one.room_id for one in await control.call(LIST_ROOMS, Nothing()) if one.name == given]
    if not fitting:
        from sublet.daemon.api.conversations import MAX_ADDRESS_CHARS, REACH, Reach

        if 0 < len(given) <= MAX_ADDRESS_CHARS:
            try:
                return (await control.call(REACH, Reach(to=given, open=open_one))).room_id
            except SubletError as error:
                if error.code is not LocalCode.NOT_FOUND or not await _is_invited(control, given):
                    raise
                what = f"you are invited to {clean_line(given, MAX_NAME_CHARS)!r}, and have not said yes"
                raise SubletError(LocalCode.NOT_FOUND, what, "sublet room accept") from None
    shown = clean_line(given, MAX_NAME_CHARS)
    if not fitting:
        raise SubletError(LocalCode.NOT_FOUND, f"there is no room {shown!r}", "See: sublet room list")
    if len(fitting) > 1:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{len(fitting)} rooms are called {shown!r}", "Give its id.")
    return fitting[0]


async def _is_invited(control: Control, name: str) -> bool:
    from sublet.daemon.api.invitations import LIST_INVITATIONS
    from sublet.daemon.api.operation import Nothing

    found = await control.call(LIST_INVITATIONS, Nothing())
    return any(one.name == name and one.answer == "pending" for one in found)


async def resolve_ref(control: Control, room_id: str, given: str, *, of: str | None = None) -> str:
    """Return the id of the message that ``given`` names.

    Args:
        control: the daemon.
        room_id: the room.
        given: an id, the end of one of the last messages, or ``last``.
        of: whose last message ``last`` is; anybody's where it is None.

    Raises:
        SubletError: ``NOT_FOUND`` for none, ``INVALID_ARGUMENT`` for the end of several.
    """
    if is_ref_id(given):
        return given
    from sublet.daemon.api.room_messages import READ_MESSAGES, ReadMessages

    request = ReadMessages(room_id=room_id, limit=LOOKED_THROUGH, peek=True)
    found = await control.call(READ_MESSAGES, request)
    return pick(found, given, of=of).ref_id


def pick(messages: Sequence[MessageView], given: str, *, of: str | None = None) -> MessageView:
    """Return the message that ``given`` names, of some that are there.

    Raises:
        SubletError: as ``resolve_ref``.
    """
    end = given.upper()
    if given == LAST:
        fitting = [one for one in messages if of in (None, one.author) and one.status != DELETED][-1:]
    else:
        fitting = [one for one in messages if len(end) >= MIN_END_CHARS and one.ref_id.endswith(end)]
    if len(fitting) > 1:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"{len(fitting)} messages end like that", "Give more of the message's id."
        )
    if not fitting:
        shown = clean_line(given, MAX_NAME_CHARS)
        raise SubletError(
            LocalCode.NOT_FOUND,
            f"no message {shown!r} among the last {len(messages)} of the room",
            "`sublet read ROOM` shows the ids of messages.",
        )
    return fitting[0]


def text_argument(given: str) -> str:
    """Return a text that was typed; ``-`` reads it from standard input.

    Raises:
        typer.BadParameter: it is empty or too long.
    """
    text = from_stdin(MAX_TEXT_CHARS, "the text").removesuffix("\n") if given == STDIN else given
    where = " on stdin" if given == STDIN else ""
    if not text:
        raise typer.BadParameter(f"the text{where} is empty")
    if len(text) > MAX_TEXT_CHARS:
        raise typer.BadParameter(f"the text{where} has more than {MAX_TEXT_CHARS:,} characters; attach a file for more")
    return text
