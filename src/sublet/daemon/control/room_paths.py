"""Paths of rooms and messages on the control API, of ids alone."""

from __future__ import annotations

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import is_ref_id, is_room_id
from sublet.protocol.text import clean_line

MAX_SHOWN_CHARS = 80


def room_path(room_id: str) -> str:
    """Return the path of a room.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what is no id, and would mean something else in a path.
    """
    if not is_room_id(room_id):
        what = f"{clean_line(room_id, MAX_SHOWN_CHARS)!r} is no id of a room"
        raise SubletError(LocalCode.INVALID_ARGUMENT, what, "See: sublet room list")
    return f"/v1/rooms/{room_id}"


def message_path(room_id: str, ref_id: str) -> str:
    """Return the path of a message.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what is no id.
    """
    if not is_ref_id(ref_id):
        what = f"{clean_line(ref_id, MAX_SHOWN_CHARS)!r} is no id of a message"
        raise SubletError(LocalCode.INVALID_ARGUMENT, what, "`sublet read ROOM` shows the ids of messages.")
    return f"{room_path(room_id)}/messages/{ref_id}"
