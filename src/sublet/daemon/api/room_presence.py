"""Operations on presence and drafts: who is there, and what is not sent yet (EXT-09, EXT-12)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import ToldLine, ToldTime, View, size_of
from sublet.daemon.api.operation import Asks, Operation
from sublet.daemon.api.room_fields import MAX_BODY_CHARS, OneRoom, RefId
from sublet.daemon.api.rooms import RoomChange
from sublet.policy.decision import Action

MAX_STATUS_CHARS = 200


class SetPresence(OneRoom):
    """What the caller is about; None leaves it as it is, and an empty status takes it away."""

    status: Annotated[str, Field(max_length=MAX_STATUS_CHARS)] | None = None
    typing: bool | None = None

    @property
    def size_bytes(self) -> int:
        """How much is said."""
        return size_of(self.status or "")


class SaveDraft(OneRoom):
    """What the caller has begun to write; an empty one takes the draft away."""

    body: Annotated[str, Field(max_length=MAX_BODY_CHARS)]
    reply_to: RefId | None = None

    @property
    def size_bytes(self) -> int:
        """How much is written."""
        return size_of(self.body)


class PresenceView(View):
    """A member who is there."""

    entity: str
    typing: bool
    status: ToldLine | None
    last_active: str | None


class DraftView(View):
    """What somebody has begun to write in a room; an empty body where that is nothing."""

    room_id: str
    body: str
    reply_to: str | None
    updated_at: ToldTime | None


_PRESENCE = "/v1/rooms/{room_id}/presence"
_DRAFT = "/v1/rooms/{room_id}/draft"
_READS = Asks(Action.ROOM_READ, "{room_id}")
_SENDS = Asks(Action.ROOM_SEND, "{room_id}", ("size_bytes",))

LIST_PRESENCE = Operation(
    "presence.list",
    "GET",
    _PRESENCE,
    OneRoom,
    list[PresenceView],
    asks=_READS,
    summary="Return the members who are there.",
)
SET_PRESENCE = Operation(
    "presence.set",
    "POST",
    _PRESENCE,
    SetPresence,
    RoomChange,
    asks=_SENDS,
    summary="Tell a room in passing what the caller is about.",
)
LOAD_DRAFT = Operation(
    "drafts.load",
    "GET",
    _DRAFT,
    OneRoom,
    DraftView,
    asks=_READS,
    summary="Return what the caller has begun to write.",
)
SAVE_DRAFT = Operation(
    "drafts.save",
    "POST",
    _DRAFT,
    SaveDraft,
    DraftView,
    asks=_SENDS,
    summary="Keep what the caller has begun to write.",
)
