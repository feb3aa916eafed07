"""In which states a session can be, how it gets from one to another, and in which it takes input."""

from __future__ import annotations

from collections.abc import Mapping

from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.sessions.session_parts import MainSession, Status

WAYS: Mapping[Status, frozenset[Status]] = {
    "active": frozenset({"paused", "completed", "error"}),
    "paused": frozenset({"active", "completed"}),
    "completed": frozenset({"active"}),
    "error": frozenset({"active", "completed"}),
}
"""From each status to which others a session may go."""


def check_way(session: MainSession, status: Status) -> None:
    """Refuse a way that the table does not have.

    Raises:
        SubletError: ``CONFLICT``.
    """
    if status not in WAYS[session.status]:
        raise SubletError(
            LocalCode.CONFLICT,
            f"session {session.finger_session_id} is {session.status} and can't become {status}",
            f"Resume it first: sublet sessions resume {session.finger_session_id}",
        )


def check_takes_input(session: MainSession) -> None:
    """Refuse input to a session that is not active.

    Raises:
        SubletError: ``SESSION_CLOSED``.
    """
    if session.status == "active":
        return
    damage = session.metadata.get("damage")
    aside = f"; its record was put aside as {damage.get('set_aside_as')}" if isinstance(damage, dict) else ""
    raise SubletError(
        LocalCode.SESSION_CLOSED,
        f"session {session.finger_session_id} is {session.status} and takes no input{aside}",
        f"Go on with it: sublet sessions resume {session.finger_session_id}",
    )
