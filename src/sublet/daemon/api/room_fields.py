"""Fields that requests about rooms have in common: ids, names, and the requests that are no more than those."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from sublet.daemon.api.base import Request
from sublet.daemon.api.operation import Segment
from sublet.protocol.ezagent.ids import is_ref_id, is_room_id

MAX_BODY_CHARS = 65_536
MAX_ENTITY_CHARS = 400
MAX_REASON_CHARS = 500

RoomId = Annotated[str, Segment(is_room_id, "id of a room", "See: sublet room list")]
MessageId = Annotated[str, Segment(is_ref_id, "id of a message", "`sublet read ROOM` shows the ids of messages.")]
RefId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9:]+$")]
"""The id of a message that is no part of a path."""
RoomName = Annotated[str, Field(min_length=1, max_length=256)]
ChannelName = Annotated[str, Field(min_length=1, max_length=65)]
Entity = Annotated[str, Field(min_length=1, max_length=MAX_ENTITY_CHARS)]
Format = Literal["plain", "markdown", "html"]
"""How the text of a message is meant. A terminal and the page show it as text, whatever it is."""
MEDIA_TYPE: Final = "text/"
"""Before a format, as messages have it on the wire."""
Reason = Annotated[str, Field(max_length=MAX_REASON_CHARS)]


class OneRoom(Request):
    """Names the room that an operation is about."""

    room_id: RoomId


class OneMessage(OneRoom):
    """A message of a room."""

    ref_id: MessageId
