"""Operations on news of rooms: what has happened after a cursor, and watches, which say what else is news."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from sublet.daemon.api.base import MAX_WAIT_SECONDS, Request, View
from sublet.daemon.api.conversations import Address, ConversationMessage
from sublet.daemon.api.operation import Asks, AsksInside, Nothing, Operation
from sublet.daemon.api.room_fields import ChannelName, RefId
from sublet.daemon.api.room_messages import MAX_CHANNELS
from sublet.policy.decision import Action
from sublet.protocol.idle_fields import refuse_idle

MAX_NEWS = 50
MAX_NEWS_CHARS = 600
"""Of a message as news shows it; ``messages.get`` gives all of it."""
MAX_WATCH_REASON_CHARS = 200

AnyRoomId = Annotated[str, Field(min_length=36, max_length=36, pattern=r"^[0-9a-f-]{36}$")]


class WatchRooms(Request):
    """Events after a cursor; with ``wait`` seconds to wait for one where there is none.

    Without ``since`` it is what the caller has not acknowledged yet, its own doings left out; the same comes again
    until ``acknowledge`` names the cursor of the answer that has it, of the same ``room_id``.
    """

    since: Annotated[int, Field(ge=0)] | None = None
    acknowledge: Annotated[int, Field(ge=0)] | None = None
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0
    room_id: AnyRoomId | None = None


class FollowNews(Request):
    """News after a cursor, which acknowledges the answer that named it; without one all that is not acknowledged."""

    since: Annotated[int, Field(ge=0)] | None = None
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0
    room: Address | None = None
    peek: bool = Field(default=False, description="Receive nothing, and see the caller's own doings too")


_OF_A_MESSAGE = ("on_content_edit", "on_reply", "on_thread", "on_reaction")


class SetWatch(Request):
    """Be told of replies to a message, its edits, its thread or reactions; or of messages in channels."""

    room: Address
    ref_id: RefId | None = None
    channels: Annotated[list[ChannelName], Field(max_length=MAX_CHANNELS)] = Field(default_factory=list)
    reason: Annotated[str, Field(max_length=MAX_WATCH_REASON_CHARS)] = ""
    on_content_edit: bool = True
    on_reply: bool = True
    on_thread: bool = True
    on_reaction: bool = False
    this_room_only: bool = False

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        if (self.ref_id is None) == (not self.channels):
            raise ValueError("give ref_id or channels")
        if self.ref_id is None:
            refuse_idle(self, "are of a message, not of channels", *_OF_A_MESSAGE)
        else:
            refuse_idle(self, "is of channels, not of a message", "this_room_only")
        return self


class UnsetWatch(Request):
    """End the watch on a message; without one that on channels which the room keeps."""

    room: Address
    ref_id: RefId | None = None


class RoomCursor(View):
    """The cursor after all that has happened."""

    cursor: int


class RoomEvents(View):
    """Events in order, and the cursor after them."""

    events: list[dict[str, JsonValue]]
    cursor: int
    missed: bool = Field(default=False, description="More had happened than is kept: read the rooms")


class RoomEvent(View):
    """Something that happened, with the message where it is about one."""

    cursor: int = Field(description="After it")
    kind: str
    room_id: str
    data: dict[str, JsonValue] = Field(default_factory=dict)
    message: ConversationMessage | None = None


class News(View):
    """What happened, in order, and the cursor after it; it is told again until that cursor, or the room, was read."""

    events: list[RoomEvent]
    cursor: int
    missed: bool = Field(default=False, description="More had happened than is kept: read the rooms")
    more: bool = Field(description="Whether there is more right now")


class WatchedRef(View):
    """A watch on a message."""

    room_id: str
    ref_id: str
    reason: str
    on_content_edit: bool
    on_reply: bool
    on_thread: bool
    on_reaction: bool


class WatchedChannels(View):
    """A watch on channels, and the room that keeps it."""

    room_id: str
    channels: list[str]
    scope: str


class Watches(View):
    """All watches of the caller."""

    refs: list[WatchedRef]
    channels: list[WatchedChannels]
    removed: bool | None = Field(default=None, description="Whether there was the one to end")


_WATCHES = "/v1/room-watches"
_WRITES = AsksInside("the room is known only once its address is read", (Action.ROOM_READ, Action.ROOM_SEND))

WATCH_ROOMS = Operation(
    "rooms.watch",
    "GET",
    "/v1/room-events",
    WatchRooms,
    RoomEvents,
    asks=Asks(Action.ROOM_READ, "{room_id}"),
    summary="Return what has happened after a cursor, waiting for it where it is told to.",
)
FOLLOW_NEWS = Operation(
    "news.follow",
    "GET",
    "/v1/room-news",
    FollowNews,
    News,
    asks=AsksInside("the room is known only once its address is read", (Action.ROOM_READ,)),
    summary="Return what others have done after a cursor, with its messages, waiting for it where it is told to.",
)
GET_NEWEST = Operation(
    "news.newest",
    "GET",
    "/v1/room-cursor",
    Nothing,
    RoomCursor,
    asks=Asks(Action.ROOM_READ),
    summary="Return the cursor after all that has happened.",
)
LIST_WATCHES = Operation(
    "watches.list",
    "GET",
    _WATCHES,
    Nothing,
    Watches,
    asks=Asks(Action.ROOM_READ),
    summary="Return the caller's watches.",
)
SET_WATCH = Operation(
    "watches.set",
    "POST",
    _WATCHES,
    SetWatch,
    Watches,
    asks=_WRITES,
    summary="Put a watch, and return all. The room keeps it, for all its members to see.",
)
UNSET_WATCH = Operation(
    "watches.unset",
    "DELETE",
    _WATCHES,
    UnsetWatch,
    Watches,
    asks=_WRITES,
    summary="End a watch, and return the others.",
)
