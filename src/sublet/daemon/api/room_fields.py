"""Fields that requests about rooms have in common: the ids that stand in paths."""

from __future__ import annotations

from typing import Annotated

from sublet.daemon.api.operation import Segment
from sublet.protocol.ezagent.ids import is_ref_id, is_room_id

RoomId = Annotated[str, Segment(is_room_id, "id of a room", "See: sublet room list")]
MessageId = Annotated[str, Segment(is_ref_id, "id of a message", "`sublet read ROOM` shows the ids of messages.")]
