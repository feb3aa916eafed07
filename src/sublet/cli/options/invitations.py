"""Invitations as they are named on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.entities import load_names
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.api.invitations import InvitationView
    from sublet.daemon.control.client import ControlClient as Control

MAX_NAME_CHARS = 100
PENDING = "pending"
_SEE = "See: sublet room invitations"

InvitationArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ROOM",
        help="Its id, its name, or who invites; left out where one invitation waits.",
        show_default=False,
    ),
]


async def find_invitation(control: Control, given: str) -> InvitationView | None:
    """Return the invitation that ``given`` names, of those that wait; of those that were answered, by its id alone.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a name of several.
    """
    from sublet.daemon.api.invitations import LIST_INVITATIONS
    from sublet.daemon.api.operation import Nothing

    found = await control.call(LIST_INVITATIONS, Nothing())
    by_id = next((one for one in found if one.room_id == given), None)
    if by_id is not None:
        return by_id
    waiting = [one for one in found if one.answer == PENDING]
    fitting = [one for one in waiting if one.name == given]
    if not fitting and waiting:
        names = await load_names(control)
        try:
            inviter = names.entity(given)
        except (SubletError, typer.BadParameter):
            return None
        fitting = [one for one in waiting if one.by == inviter]
    if len(fitting) > 1:
        what = f"{len(fitting)} invitations fit {clean_line(given, MAX_NAME_CHARS)!r}"
        raise SubletError(LocalCode.INVALID_ARGUMENT, what, f"Give the room's id. {_SEE}")
    return fitting[0] if fitting else None


async def resolve_invitation(control: Control, given: str | None) -> InvitationView:
    """Return the invitation that ``given`` names, or the one that waits.

    Raises:
        SubletError: ``NOT_FOUND`` for none, ``INVALID_ARGUMENT`` for several.
    """
    from sublet.daemon.api.invitations import LIST_INVITATIONS
    from sublet.daemon.api.operation import Nothing

    if given is not None:
        found = await find_invitation(control, given)
        if found is None:
            shown = clean_line(given, MAX_NAME_CHARS)
            raise SubletError(LocalCode.NOT_FOUND, f"no invitation to {shown!r} waits here", _SEE)
        return found
    waiting = [one for one in await control.call(LIST_INVITATIONS, Nothing()) if one.answer == PENDING]
    if not waiting:
        raise SubletError(LocalCode.NOT_FOUND, "no invitation waits here", "Whoever is paired with you can invite you.")
    if len(waiting) > 1:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{len(waiting)} invitations wait", f"Name one. {_SEE}")
    return waiting[0]
