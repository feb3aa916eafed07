"""What the tools for talking take."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.conversations import (
    DEFAULT_PAGE_MESSAGES,
    MAX_ATTACHMENTS,
    MAX_PAGE_MESSAGES,
    Address,
    Cursor,
)
from sublet.daemon.api.room_fields import MAX_BODY_CHARS, Format, RefId
from sublet.daemon.api.room_files import BlobHash
from sublet.daemon.api.room_marks import MAX_EMOJI_CHARS
from sublet.daemon.api.room_messages import MAX_CHANNELS
from sublet.daemon.api.room_news import MAX_WATCH_REASON_CHARS
from sublet.daemon.api.room_people import MAX_PROFILE_FIELDS, MAX_QUERY_CHARS
from sublet.mcp_server.arguments import Arguments
from sublet.protocol.idle_fields import refuse_idle

MAX_PROFILE_TEXT = 16_384
Channel = Annotated[str, Field(min_length=1, max_length=64)]
Place = Annotated[str, Field(pattern=r"^[0-9]{0,18}:[0-9]{1,18}$")]


class SendMessage(Arguments):
    """Arguments of ``send_message``."""

    to: Address = Field(
        description="Room id or name, @entity, AGENT@PEER, or a peer's name; !agent-broadcast: all nodes; see directory"
    )
    message: Annotated[str, Field(min_length=1, max_length=MAX_BODY_CHARS)]
    reply_to: RefId | None = Field(default=None, description="ref_id of the message that this answers")
    reply_room: Address | None = Field(default=None, description="The room of that message, where it is another")
    thread: RefId | None = Field(default=None, description="ref_id of the first message of a thread")
    format: Format = "plain"
    channels: Annotated[list[Channel], Field(max_length=MAX_CHANNELS)] = Field(
        default_factory=list, description="Tags under which it is found over all rooms"
    )
    attachments: Annotated[list[BlobHash], Field(max_length=MAX_ATTACHMENTS)] = Field(
        default_factory=list, description="Hashes of media in that room"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.reply_room is not None and self.reply_to is None:
            raise ValueError("reply_room is the room of reply_to: give that too")
        return self


class ReadMessages(Arguments):
    """Arguments of ``read_messages``."""

    room: Address | None = Field(default=None, description="As to of send_message; a room, or channel")
    thread: RefId | None = Field(default=None, description="Only the thread that this message begins")
    channel: Channel | None = Field(default=None, description="A channel, over all rooms")
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)] | None = Field(
        default=None, description="Words to find, in room or all rooms, the newest first"
    )
    ref_id: RefId | None = Field(default=None, description="This one message of room, in full")
    attachment: bool = Field(default=False, description="With ref_id: the text of the file that it comes with")
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_MESSAGES)] = DEFAULT_PAGE_MESSAGES
    cursor: Cursor | None = Field(default=None, description="next_cursor of the last answer")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.query is not None:
            if self.model_fields_set - {"query", "room", "limit", "cursor"}:
                raise ValueError("query goes with room, limit and cursor alone")
            return self
        if (self.room is None) == (self.channel is None):
            raise ValueError("give room or channel, or query")
        if self.room is None and (self.thread is not None or self.ref_id is not None):
            raise ValueError("a thread and a ref_id are of a room: give it")
        if self.attachment and self.ref_id is None:
            raise ValueError("an attachment is of one message: give its ref_id")
        if self.ref_id is not None and self.cursor is not None and not self.cursor.isdecimal():
            raise ValueError("cursor is that of another question: with ref_id it is a number")
        if self.ref_id is not None:
            refuse_idle(self, "can't go with ref_id, which is one message", "thread", "limit")
        return self


class Change(Arguments):
    """Arguments of ``change_message``."""

    room: Address = Field(description="As to of send_message")
    ref_id: RefId
    emoji: Annotated[str, Field(min_length=1, max_length=MAX_EMOJI_CHARS)] | None = Field(
        default=None, description="React with it; with remove, take it back"
    )
    message: Annotated[str, Field(min_length=1, max_length=MAX_BODY_CHARS)] | None = Field(
        default=None, description="What yours says from now on"
    )
    format: Format | None = None
    remove: bool = Field(default=False, description="Without emoji: delete your message")
    purge: bool = Field(default=False, description="With remove: from everybody's disk, for good")

    @model_validator(mode="after")
    def _one_change(self) -> Self:
        if self.message is not None and (self.emoji is not None or self.remove):
            raise ValueError("an edit is message and format alone")
        if self.message is None and (self.format is not None or (self.emoji is None and not self.remove)):
            raise ValueError("give emoji, message, or remove")
        if self.purge and (self.emoji is not None or not self.remove):
            raise ValueError("purge goes with remove alone")
        return self


class People(Arguments):
    """Arguments of ``people``."""

    action: Literal["find", "profile", "describe", "invite", "invitations", "accept", "decline"]
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)] | None = Field(
        default=None, description="find: words that a profile holds"
    )
    entity: Address | None = Field(default=None, description="profile: whose, yours by default; invite: whom")
    room: Address | None = Field(
        default=None, description="invite: into which room; accept, decline: the room_id of an invitation"
    )
    fields: Annotated[dict[str, JsonValue], Field(max_length=MAX_PROFILE_FIELDS)] = Field(
        default_factory=dict, description="describe: such as display_name, skills; null takes one away"
    )
    text: Annotated[str, Field(max_length=MAX_PROFILE_TEXT)] | None = Field(
        default=None, description="describe: what you say of yourself"
    )

    @model_validator(mode="after")
    def _fits_action(self) -> Self:
        takes = {
            "find": {"query"},
            "profile": {"entity"},
            "describe": {"fields", "text"},
            "invite": {"entity", "room"},
            "invitations": set(),
            "accept": {"room"},
            "decline": {"room"},
        }[self.action]
        given = self.model_fields_set - {"action"}
        if given - takes:
            raise ValueError(f"{self.action} takes {' and '.join(sorted(takes)) or 'nothing else'}")
        if (takes and not given and self.action != "profile") or (self.action == "invite" and given != takes):
            raise ValueError(f"{self.action} needs {' and '.join(sorted(takes))}")
        return self


_TAKEN = {
    "wait": {"cursor", "wait_seconds", "room"},
    "set": {"room", "ref_id", "channels", "reason", "on_reaction"},
    "unset": {"room", "ref_id"},
    "list": set[str](),
}
"""What each action of ``watch`` takes."""


class Watch(Arguments):
    """Arguments of ``watch``."""

    action: Literal["wait", "set", "unset", "list"] = Field(
        default="wait", description="wait for news, set or unset a watch on ref_id or channels, or list watches"
    )
    cursor: Place | None = Field(default=None, description="next_cursor of the last answer; none: all not received")
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0
    room: Address | None = Field(default=None, description="Of this room only; for set and unset the room to watch in")
    ref_id: RefId | None = Field(default=None, description="set, unset: the message")
    channels: Annotated[list[Channel], Field(max_length=MAX_CHANNELS)] = Field(
        default_factory=list, description="set: channels, over all rooms"
    )
    reason: Annotated[str, Field(max_length=MAX_WATCH_REASON_CHARS)] = Field(
        default="", description="set: why, for others"
    )
    on_reaction: bool = Field(default=False, description="set: of reactions too, beside replies, edits and its thread")

    @field_validator("cursor", mode="before")
    @classmethod
    def _not_empty(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.action in ("set", "unset") and self.room is None:
            raise ValueError(f"{self.action} needs the room")
        if self.action == "set" and (self.ref_id is None) == (not self.channels):
            raise ValueError("set needs ref_id or channels")
        idle = set(type(self).model_fields) - _TAKEN[self.action] - {"action"}
        refuse_idle(self, f"can't go with action {self.action}", *sorted(idle))
        if self.action == "set" and self.ref_id is None:
            refuse_idle(self, "is of a message, not of channels", "on_reaction")
        return self
