"""What faces exchange with the daemon about rooms (ezagent 4, DESIGN 6)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from sublet.daemon.api.base import MAX_WAIT_SECONDS, Request, ToldLine, ToldTime, View

MAX_BODY_CHARS = 65_536
MAX_MESSAGES = 200
DEFAULT_MESSAGES = 50
MAX_ENTITY_CHARS = 400
MAX_CHANNELS = 16

RoomName = Annotated[str, Field(min_length=1, max_length=256)]
RoomId = Annotated[str, Field(min_length=36, max_length=36, pattern=r"^[0-9a-f-]{36}$")]
ChannelName = Annotated[str, Field(min_length=1, max_length=65)]
RefId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9:]+$")]


class CreateRoom(Request):
    """Open a room."""

    name: RoomName
    policy: Literal["open", "knock", "invite"] = "invite"


class InviteToRoom(Request):
    """Make somebody a member."""

    entity: Annotated[str, Field(min_length=1, max_length=MAX_ENTITY_CHARS)]


class SendMessage(Request):
    """Say something in a room.

    ``reply_to`` is the message that it answers, ``thread`` the first one of the thread that it belongs to.
    """

    body: Annotated[str, Field(min_length=1, max_length=MAX_BODY_CHARS)]
    reply_to: RefId | None = None
    thread: RefId | None = None
    channels: Annotated[list[ChannelName], Field(max_length=MAX_CHANNELS)] = Field(default_factory=list)
    media: Annotated[str, Field(max_length=80)] | None = None
    filename: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """What to call the file, where that is not what the room calls it."""


class ReadMessages(Request):
    """Which messages: the last ones, or the last before ``before``, of all, or of a thread or a channel.

    With ``peek`` reading marks nothing as read.
    """

    limit: Annotated[int, Field(ge=1, le=MAX_MESSAGES)] = DEFAULT_MESSAGES
    before: RefId | None = None
    thread: RefId | None = None
    channel: ChannelName | None = None
    peek: bool = False

    @model_validator(mode="after")
    def _one_view(self) -> Self:
        if self.thread is not None and self.channel is not None:
            raise ValueError("give a thread or a channel")
        return self


class WatchRooms(Request):
    """Events after a cursor; with ``wait`` seconds to wait for one where there is none.

    Without ``since`` it is what the caller has not acknowledged yet, its own doings left out; the same comes again
    until ``acknowledge`` names the cursor of the answer that has it, of the same ``room_id``.
    """

    since: Annotated[int, Field(ge=0)] | None = None
    acknowledge: Annotated[int, Field(ge=0)] | None = None
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0
    room_id: RoomId | None = None


class WhoAmI(View):
    """As whom the caller speaks in rooms."""

    entity_id: str
    level: int | None = Field(default=None, description="Compliance level of ezagent")


class RoomView(View):
    """A room as a member sees it."""

    room_id: str
    name: str
    policy: str
    role: str
    members: int


class RoomDetail(RoomView):
    """A room with its members and its config, by names with dots."""

    roles: dict[str, str] = Field(description="Role of each member")
    powers: dict[str, int] = Field(default={}, description="Power of each member")
    knocks: dict[str, str] = Field(default={}, description="Who asks to be let in, and with what words")
    config: dict[str, JsonValue] = Field(default={})
    apart: dict[str, str] = Field(
        default={}, description="Members whose daemon is another version of Sublet that no message reaches, and why"
    )


class RoomChange(View):
    """What was done to a room."""

    room_id: str
    name: str = ""
    entity: str = ""
    apart: str = Field(default="", description="Why the daemon of that entity learns nothing of it for now")


class MessageSent(View):
    """A message that is durable here; ``queued`` says that no more than that is known."""

    ref_id: str
    room_id: str
    created_at: ToldTime
    receipt: Literal["queued"] = "queued"


class MessageView(View):
    """A message. ``body`` is None where its content has not come yet, or was deleted."""

    ref_id: str
    author: str
    body: str | None
    status: ToldLine
    created_at: ToldTime
    ext: dict[str, JsonValue] = Field(default={})
    about: dict[str, JsonValue] = Field(default={}, description="What is made of it: reactions, replies, redacted, …")


class ChannelView(View):
    """A channel over the rooms of a reader."""

    channel: str
    room_count: int
    last_activity: str
    name: str = ""


class RoomCursor(View):
    """The cursor after all that has happened."""

    cursor: int


class RoomEvents(View):
    """Events in order, and the cursor after them."""

    events: list[dict[str, JsonValue]]
    cursor: int
    missed: bool = Field(default=False, description="More had happened than is kept: read the rooms")
