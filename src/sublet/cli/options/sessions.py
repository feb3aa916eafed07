"""Sessions as they are named on the command line: by id, by the beginning of one, or as the last one used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.near import did_you_mean

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

LAST = "last"
"""What stands for the session that was used last."""

SessionOption = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Session to go on with, or last. [default: a new one]"),
]


async def resolve_session(control: Control, given: str) -> str:
    """Return the id of a session for a full or abbreviated one, or for ``last``.

    Raises:
        SubletError: ``NOT_FOUND`` for none, ``INVALID_ARGUMENT`` for an abbreviation that fits several.
    """
    from sublet.daemon.api.sessions import LIST_SESSIONS, ListSessions

    known = await control.call(LIST_SESSIONS, ListSessions(limit=500))
    if given == LAST:
        fitting = [one.finger_session_id for one in known[:1]]
    else:
        ids = [one.finger_session_id for one in known]
        if given in ids:
            return given
        fitting = [one for one in ids if given and one.startswith((given, f"ses_{given}"))]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"{given[:80]!r} fits {len(fitting)} sessions",
            "Give more characters of the id.",
        )
    start = given if given.startswith("ses_") else f"ses_{given}"
    near = did_you_mean(start, (one.finger_session_id[: len(start)] for one in known))
    raise SubletError(LocalCode.NOT_FOUND, f"there is no session {given[:80]!r}{near}", "See: sublet sessions list")
