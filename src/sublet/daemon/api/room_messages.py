"""Operations on messages of a room: saying something, reading it, and what became of it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from sublet.daemon.api.base import MAX_WAIT_SECONDS, Request, ToldLine, ToldTime, View, size_of
from sublet.daemon.api.operation import Asks, Nothing, Operation
from sublet.daemon.api.room_fields import (
    MAX_BODY_CHARS,
    MAX_ENTITY_CHARS,
    ChannelName,
    Format,
    OneMessage,
    OneRoom,
    RefId,
)
from sublet.policy.decision import Action
from sublet.protocol.idle_fields import refuse_idle

MAX_MESSAGES = 200
DEFAULT_MESSAGES = 50
MAX_CHANNELS = 64
MAX_CHANNELS_SENT = 16

ReceiptState = Literal["undeliverable", "queued", "delivered", "read"]
"""Worst first: not to be delivered any more; durable here; durable at the recipient's daemon; read."""


class Words(Request):
    """What is said: ``reply_to`` is the message that it answers, ``thread`` the first one of its thread.

    ``reply_room`` is the room of the message that it answers, where that is another one (EXT-05).
    """

    body: Annotated[str, Field(min_length=1, max_length=MAX_BODY_CHARS)]
    format: Format = "plain"
    reply_to: RefId | None = None
    reply_room: Annotated[str, Field(min_length=1, max_length=MAX_ENTITY_CHARS)] | None = None
    thread: RefId | None = None
    channels: Annotated[list[ChannelName], Field(max_length=MAX_CHANNELS)] = Field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """How much is said."""
        return size_of(self.body)

    @model_validator(mode="after")
    def _answers_something(self) -> Self:
        if self.reply_room is not None and self.reply_to is None:
            raise ValueError("give reply_to with reply_room: the message that is answered")
        return self


class SendMessage(Words, OneRoom):
    """Say something in a room; ``media`` is the hash of a file that the room has."""

    channels: Annotated[list[ChannelName], Field(max_length=MAX_CHANNELS_SENT)] = Field(default_factory=list)
    media: Annotated[str, Field(max_length=80)] | None = None
    filename: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """What to call the file, where that is not what the room calls it."""

    @model_validator(mode="after")
    def _names_a_file(self) -> Self:
        if self.media is None:
            refuse_idle(self, "is the name of media: give that too", "filename")
        return self


class ListThreads(OneRoom):
    """Which messages: the last ones, or the last before ``before``."""

    limit: Annotated[int, Field(ge=1, le=MAX_MESSAGES)] = DEFAULT_MESSAGES
    before: RefId | None = None


class ReadMessages(ListThreads):
    """Which messages: the last ones, or the last before ``before``, of all, or of a thread or a channel.

    With ``peek`` reading marks nothing as read.
    """

    thread: RefId | None = None
    channel: ChannelName | None = None
    peek: bool = False

    @model_validator(mode="after")
    def _one_view(self) -> Self:
        if self.thread is not None and self.channel is not None:
            raise ValueError("give a thread or a channel")
        return self


class AskReceipts(OneMessage):
    """With ``wait`` seconds to wait until all recipients have come as far as ``until``."""

    until: Literal["delivered", "read"] | None = None
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0

    @model_validator(mode="after")
    def _waits_for_something(self) -> Self:
        if self.until is None:
            refuse_idle(self, "can't be without until", "wait")
        return self


class MessageSent(View):
    """A message that is durable here; ``queued`` says that no more than that is known."""

    ref_id: str
    room_id: str
    created_at: ToldTime
    receipt: ReceiptState = "queued"


class MessageView(View):
    """A message. ``body`` is None where its content has not come yet, or was deleted."""

    ref_id: str
    author: str
    body: str | None
    status: ToldLine
    created_at: ToldTime
    format: Format = "plain"
    ext: dict[str, JsonValue] = Field(default={})
    about: dict[str, JsonValue] = Field(
        default={}, description="What is made of it: reactions, replies, redacted, purged, …"
    )


class ChannelView(View):
    """A channel over the rooms of a reader."""

    channel: str
    room_count: int
    last_activity: str
    name: str = ""


class RecipientReceipt(View):
    """How far a message has come with one recipient."""

    entity: str
    receipt: ReceiptState
    reason: str = Field(default="", description="Why it goes no further")


class MessageReceipts(View):
    """How far a message has come; ``receipt`` is the least of all recipients."""

    ref_id: str
    room_id: str
    created_at: ToldTime
    receipt: ReceiptState
    recipients: list[RecipientReceipt]
    purged: bool = Field(default=False, description="It was acknowledged, and is gone since for good")


_READS = Asks(Action.ROOM_READ, "{room_id}")

SEND_MESSAGE = Operation(
    "messages.send",
    "POST",
    "/v1/rooms/{room_id}/messages",
    SendMessage,
    MessageSent,
    asks=Asks(Action.ROOM_SEND, "{room_id}", ("size_bytes",)),
    summary="Say something in a room. It is durable once this is answered.",
    status=201,
)
READ_MESSAGES = Operation(
    "messages.list",
    "GET",
    "/v1/rooms/{room_id}/messages",
    ReadMessages,
    list[MessageView],
    asks=_READS,
    summary="Return messages of a room, the oldest first.",
)
LIST_THREADS = Operation(
    "threads.list",
    "GET",
    "/v1/rooms/{room_id}/threads",
    ListThreads,
    list[MessageView],
    asks=_READS,
    summary="Return the messages of a room that threads begin with.",
)
LIST_CHANNELS = Operation(
    "channels.list",
    "GET",
    "/v1/channels",
    Nothing,
    list[ChannelView],
    asks=Asks(Action.ROOM_READ),
    summary="Return the channels of all rooms of the caller, the last used first.",
)
GET_RECEIPTS = Operation(
    "messages.receipts",
    "GET",
    "/v1/rooms/{room_id}/messages/{ref_id}/receipts",
    AskReceipts,
    MessageReceipts,
    asks=_READS,
    summary="Return what became of a message of the caller's, for each recipient.",
)
