"""What faces exchange with the daemon when an agent talks: whom to, pages of what was said, news and watches."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from sublet.daemon.api.base import MAX_WAIT_SECONDS, Request, ToldLine, ToldTime, View
from sublet.daemon.api.delivery_models import ReceiptState, RecipientReceipt
from sublet.daemon.api.room_models import MAX_BODY_CHARS, RefId

MAX_ADDRESS_CHARS = 400
MAX_CHANNELS = 64
MAX_ATTACHMENTS = 16
MAX_PAGE_MESSAGES = 50
DEFAULT_PAGE_MESSAGES = 20
MAX_NEWS = 50
MAX_NEWS_CHARS = 600
"""Of a message as news shows it; ``read`` gives all of it."""
MAX_REASON_CHARS = 200

Address = Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS_CHARS)]
Channel = Annotated[str, Field(min_length=1, max_length=64)]
BlobHash = Annotated[str, StringConstraints(pattern=r"^(sha256:)?[0-9a-f]{64}$")]
Cursor = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[0-9A-Za-z:./-]+$")]


class Reach(Request):
    """Whom to talk with, as ``to`` of ``Say``; with ``open`` a conversation of two is opened where there is none."""

    to: Address
    open: bool = False


class Reached(View):
    """The room in which somebody is talked with."""

    room_id: str


class Say(Request):
    """Say something to whoever ``to`` names: a room by id or name, ``@entity``, ``AGENT@NODE``, or a peer by name."""

    to: Address
    body: Annotated[str, Field(min_length=1, max_length=MAX_BODY_CHARS)]
    reply_to: RefId | None = None
    thread: RefId | None = None
    channels: Annotated[list[Channel], Field(max_length=MAX_CHANNELS)] = Field(default_factory=list)
    attachments: Annotated[list[BlobHash], Field(max_length=MAX_ATTACHMENTS)] = Field(default_factory=list)


class Said(View):
    """A message that is durable here, and where it went."""

    room_id: str
    ref_id: str
    created_at: ToldTime
    author: str
    receipt: ReceiptState
    recipients: list[RecipientReceipt]


class ReadTalk(Request):
    """A page of a room, of a thread of it, or of a channel over all rooms; ``before`` is an earlier ``next_cursor``."""

    room: Address | None = None
    thread: RefId | None = None
    channel: Channel | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_MESSAGES)] = DEFAULT_PAGE_MESSAGES
    before: Cursor | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.room is None) == (self.channel is None) or (self.thread is not None and self.room is None):
            raise ValueError("give room, or room and thread, or channel")
        return self


class TalkFile(View):
    """The file that a message comes with, as its author calls it; nobody believes name and type."""

    blob_hash: str
    filename: str
    mime_type: str
    size_bytes: int


class TalkMessage(View):
    """A message. ``body`` is None where its content has not come yet, or was deleted."""

    room_id: str
    ref_id: str
    author: str
    own: bool = Field(description="Whether the caller has written it")
    body: str | None
    status: ToldLine
    created_at: ToldTime
    reply_to: str | None = None
    thread: str | None = None
    channels: list[str] = Field(default_factory=list)
    attachments: list[str] = Field(default_factory=list)
    file: TalkFile | None = None
    receipts: list[RecipientReceipt] = Field(default_factory=list, description="Of the caller's own, where one is read")
    ext: dict[str, JsonValue] = Field(default_factory=dict)


class TalkPage(View):
    """Messages, the oldest first; ``next_cursor`` is for those before them."""

    room_id: str | None
    messages: list[TalkMessage]
    next_cursor: str | None


class TalkRoom(View):
    """A room as a member sees it."""

    room_id: str
    name: str
    creator: str
    policy: str
    role: str
    members: dict[str, str] = Field(description="Role of each member")
    unread: int
    direct_with: str | None = Field(default=None, description="The other one, where it is a direct conversation")


class Follow(Request):
    """News after a cursor, which acknowledges the answer that named it; without one all that is not acknowledged."""

    since: Annotated[int, Field(ge=0)] | None = None
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0
    room: Address | None = None
    peek: bool = Field(default=False, description="Receive nothing, and see the caller's own doings too")


class TalkEvent(View):
    """Something that happened, with the message where it is about one."""

    cursor: int = Field(description="After it")
    kind: str
    room_id: str
    data: dict[str, JsonValue] = Field(default_factory=dict)
    message: TalkMessage | None = None


class News(View):
    """What happened, in order, and the cursor after it; it is told again until that cursor, or the room, was read."""

    events: list[TalkEvent]
    cursor: int
    missed: bool = Field(default=False, description="More had happened than is kept: read the rooms")
    more: bool = Field(description="Whether there is more right now")


class SetWatch(Request):
    """Be told of replies to a message, its edits, its thread or reactions; or of messages in channels."""

    room: Address
    ref_id: RefId | None = None
    channels: Annotated[list[Channel], Field(max_length=MAX_CHANNELS)] = Field(default_factory=list)
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS)] = ""
    on_content_edit: bool = True
    on_reply: bool = True
    on_thread: bool = True
    on_reaction: bool = False
    this_room_only: bool = False

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        if (self.ref_id is None) == (not self.channels):
            raise ValueError("give ref_id or channels")
        return self


class UnsetWatch(Request):
    """End the watch on a message; without one that on channels which the room keeps."""

    room: Address
    ref_id: RefId | None = None


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
