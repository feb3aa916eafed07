"""Operations on messages that are there: reactions, edits, decisions of moderators."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from sublet.daemon.api.base import View, size_of
from sublet.daemon.api.operation import Asks, Operation
from sublet.daemon.api.room_fields import MAX_BODY_CHARS, Format, OneMessage, Reason
from sublet.daemon.api.room_messages import MessageView
from sublet.policy.decision import Action

MAX_EMOJI_CHARS = 64


class React(OneMessage):
    """A reaction to a message."""

    emoji: Annotated[str, Field(min_length=1, max_length=MAX_EMOJI_CHARS)]

    @property
    def size_bytes(self) -> int:
        """How much is said."""
        return size_of(self.emoji)


class EditMessage(OneMessage):
    """What a message says from now on."""

    body: Annotated[str, Field(min_length=1, max_length=MAX_BODY_CHARS)]
    format: Format | None = Field(default=None, description="None leaves it as it is")

    @property
    def size_bytes(self) -> int:
        """How much is said."""
        return size_of(self.body)


class DeleteMessage(OneMessage):
    """A message of the caller's to delete."""

    @property
    def size_bytes(self) -> int:
        """How much is said: nothing."""
        return 0


class Moderate(OneMessage):
    """A decision on a message that others have written too."""

    action: Literal["redact", "pin", "unpin"]
    reason: Reason = ""


class PurgeMessage(OneMessage):
    """A message, or its files alone, to remove from every member for good."""

    files: bool = Field(default=False, description="Only the files that it came with; what it says stays")


class MessageChange(View):
    """What was done to a message; ``changed`` is False where it was so already."""

    room_id: str
    ref_id: str
    changed: bool = True


class MessagePurged(MessageChange):
    """What was purged. It goes on being removed from members as they can be reached."""

    kept_files: list[str] = Field(
        default=[], description="Files that stay, since other messages of the room come with them"
    )


class MessageVersion(View):
    """What a message has said at a time."""

    body: str
    at: JsonValue = None


_MESSAGE = "/v1/rooms/{room_id}/messages/{ref_id}"
_SENDS = Asks(Action.ROOM_SEND, "{room_id}", ("size_bytes",))

GET_MESSAGE = Operation(
    "messages.get",
    "GET",
    _MESSAGE,
    OneMessage,
    MessageView,
    asks=Asks(Action.ROOM_READ, "{room_id}"),
    summary="Return one message. That marks nothing as read.",
)
EDIT_MESSAGE = Operation(
    "messages.edit",
    "PATCH",
    _MESSAGE,
    EditMessage,
    MessageChange,
    asks=_SENDS,
    summary="Change what a message of the caller's says.",
)
DELETE_MESSAGE = Operation(
    "messages.delete",
    "DELETE",
    _MESSAGE,
    DeleteMessage,
    MessageChange,
    asks=_SENDS,
    summary="Delete a message of the caller's.",
)
LIST_VERSIONS = Operation(
    "messages.versions",
    "GET",
    f"{_MESSAGE}/versions",
    OneMessage,
    list[MessageVersion],
    asks=Asks(Action.ROOM_READ, "{room_id}"),
    summary="Return what a message has said, the first version first.",
)
ADD_REACTION = Operation(
    "reactions.add",
    "POST",
    f"{_MESSAGE}/reactions",
    React,
    MessageChange,
    asks=_SENDS,
    summary="React to a message.",
)
REMOVE_REACTION = Operation(
    "reactions.remove",
    "DELETE",
    f"{_MESSAGE}/reactions",
    React,
    MessageChange,
    asks=_SENDS,
    summary="Take a reaction of the caller's back.",
)
MODERATE_MESSAGE = Operation(
    "messages.moderate",
    "POST",
    f"{_MESSAGE}/moderation",
    Moderate,
    MessageChange,
    asks=Asks(Action.ROOM_MANAGE, "{room_id}"),
    summary="Take a message down, pin it, or pin it no longer.",
)
PURGE_MESSAGE = Operation(
    "messages.purge",
    "POST",
    f"{_MESSAGE}/purge",
    PurgeMessage,
    MessagePurged,
    asks=Asks(Action.ROOM_PURGE, "{room_id}"),
    summary="Remove a message, or its files, from every member for good.",
)
