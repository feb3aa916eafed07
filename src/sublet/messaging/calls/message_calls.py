"""Calls around what is said in rooms."""

from __future__ import annotations

from typing import Any, NotRequired, TypeAlias, TypedDict

from sublet.messaging.calls.engine_call import engine_call
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId

DEFAULT_LIMIT = 50
DEFAULT_FOUND = 20

Ref: TypeAlias = dict[str, Any]
"""A message as its reader is shown it, with what extensions have added."""


class RefSent(TypedDict):
    """A message that is durable here."""

    ref_id: RefId
    room_id: RoomId
    created_at: str


class RefPage(TypedDict):
    """Messages, the oldest first; ``next_cursor`` is for those before them, None where there are none."""

    refs: list[Ref]
    next_cursor: str | None


class MessagesFound(RefPage):
    """Messages that a search has found, the newest first; ``complete`` tells whether all were looked at."""

    complete: bool


class ChannelFound(TypedDict):
    """A channel over the rooms of a reader; ``name`` is what an admin calls it."""

    channel: str
    room_count: int
    last_activity: str
    name: NotRequired[str]


class Edited(TypedDict):
    """A message whose text is another one now."""

    ref_id: RefId
    room_id: RoomId
    content_id: str


class VersionFound(TypedDict):
    """What a message has said, and since when."""

    body_snapshot: str
    edited_at: Any


class Deleted(TypedDict):
    """Answer to deleting a message: false where nobody could read it any more."""

    deleted: bool


class Added(TypedDict):
    """Whether it was not there before."""

    added: bool


class Removed(TypedDict):
    """Answer to taking something back, such as a reaction or a watch: false where there was none."""

    removed: bool


class Decided(TypedDict):
    """A decision of a moderator; ``changed`` is False where it was so already."""

    action_id: str | None
    changed: bool


class PurgeDone(TypedDict):
    """Answer to purging a message or its files: ``changed`` is False where they were gone already.

    ``kept_files`` are hashes of files that stay, since other messages of the room name them.
    """

    changed: bool
    kept_files: list[str]


class WatchesFound(TypedDict):
    """The watches of the caller."""

    refs: list[Ref]
    channels: list[dict[str, Any]]


class AccessFound(TypedDict):
    """Who may write into a text."""

    owner: EntityId
    mode: str
    editors: list[EntityId]
    updated_at: str | None


class TextFound(AccessFound):
    """A text that several write, and whether the caller may."""

    content_id: str
    text: str
    may_edit: bool


class TextChanged(TypedDict):
    """A text after a change."""

    content_id: str
    text: str


@engine_call("message.send")
def send(
    room_id: RoomId,
    body: str,
    format: str = "text/plain",
    media_refs: list[str] | None = None,
    ext: dict[str, Any] | None = None,
) -> RefSent:
    """Say something."""
    raise NotImplementedError


@engine_call("message.delete")
def delete(room_id: RoomId, ref_id: RefId) -> Deleted:
    """Delete a message of the caller's."""
    raise NotImplementedError


@engine_call("timeline.list")
def list_timeline(
    room_id: RoomId,
    limit: int = DEFAULT_LIMIT,
    before: RefId | None = None,
    after: RefId | None = None,
    peek: bool = False,
) -> RefPage:
    """Return a page of a room."""
    raise NotImplementedError


@engine_call("search.messages")
def search_messages(
    query: str, rooms: list[RoomId] | None = None, limit: int = DEFAULT_FOUND, before: str | None = None
) -> MessagesFound:
    """Return messages that hold all words of a query."""
    raise NotImplementedError


@engine_call("timeline.get_ref")
def get_ref(room_id: RoomId, ref_id: RefId) -> Ref:
    """Return one message."""
    raise NotImplementedError


@engine_call("threads.list")
def list_threads(
    room_id: RoomId, root: RefId | None = None, limit: int = DEFAULT_LIMIT, before: RefId | None = None
) -> RefPage:
    """Return a page of a thread, or of the messages that threads begin with."""
    raise NotImplementedError


@engine_call("channels.refs")
def list_channel(
    channel: str, limit: int = DEFAULT_LIMIT, before: str | None = None, room_id: RoomId | None = None
) -> RefPage:
    """Return a page of a channel, over all rooms or of one."""
    raise NotImplementedError


@engine_call("channels.list")
def list_channels() -> list[ChannelFound]:
    """Return the channels of all rooms."""
    raise NotImplementedError


@engine_call("mutable.update")
def edit(room_id: RoomId, ref_id: RefId, body: str, format: str | None = None) -> Edited:
    """Let a message say something else."""
    raise NotImplementedError


@engine_call("mutable.versions")
def list_versions(room_id: RoomId, ref_id: RefId) -> list[VersionFound]:
    """Return what a message has said."""
    raise NotImplementedError


@engine_call("reactions.add")
def add_reaction(room_id: RoomId, ref_id: RefId, emoji: str) -> Added:
    """React to a message."""
    raise NotImplementedError


@engine_call("reactions.remove")
def remove_reaction(room_id: RoomId, ref_id: RefId, emoji: str) -> Removed:
    """Take a reaction back."""
    raise NotImplementedError


@engine_call("purge.message")
def purge(room_id: RoomId, ref_id: RefId, files: bool = False) -> PurgeDone:
    """Remove a message, or its files alone, from every member for good."""
    raise NotImplementedError


@engine_call("moderation.redact")
def redact(room_id: RoomId, ref_id: RefId, reason: str = "") -> Decided:
    """Take a message down."""
    raise NotImplementedError


@engine_call("moderation.pin")
def pin(room_id: RoomId, ref_id: RefId, reason: str = "") -> Decided:
    """Pin a message."""
    raise NotImplementedError


@engine_call("moderation.unpin")
def unpin(room_id: RoomId, ref_id: RefId, reason: str = "") -> Decided:
    """Pin a message no longer."""
    raise NotImplementedError


@engine_call("moderation.ban")
def ban(room_id: RoomId, entity: EntityId, reason: str = "") -> Decided:
    """Mark what somebody who is banned has said."""
    raise NotImplementedError


@engine_call("moderation.unban")
def unban(room_id: RoomId, entity: EntityId, reason: str = "") -> Decided:
    """Mark that no longer."""
    raise NotImplementedError


@engine_call("watch.set")
def set_watch(
    room_id: RoomId,
    ref_id: RefId | None = None,
    channels: list[str] | None = None,
    reason: str = "",
    on_content_edit: bool = True,
    on_reply: bool = True,
    on_thread: bool = True,
    on_reaction: bool = False,
    scope: str = "all_rooms",
) -> None:
    """Put a watch on a message, or on channels."""


@engine_call("watch.unset")
def unset_watch(room_id: RoomId, ref_id: RefId | None = None) -> Removed:
    """End a watch."""
    raise NotImplementedError


@engine_call("watch.list")
def list_watches() -> WatchesFound:
    """Return the caller's watches."""
    raise NotImplementedError


@engine_call("collab.connect")
def get_text(room_id: RoomId, ref_id: RefId) -> TextFound:
    """Return a text that several write."""
    raise NotImplementedError


@engine_call("collab.patch")
def patch_text(room_id: RoomId, ref_id: RefId, edits: list[tuple[int, int, str]], base: str) -> TextChanged:
    """Change a text where it still is ``base``."""
    raise NotImplementedError


@engine_call("collab.get_acl")
def get_access(room_id: RoomId, ref_id: RefId) -> AccessFound:
    """Return who may write into a message."""
    raise NotImplementedError


@engine_call("collab.update_acl")
def update_access(
    room_id: RoomId, ref_id: RefId, mode: str | None = None, editors: list[EntityId] | None = None
) -> AccessFound:
    """Let others write into a message."""
    raise NotImplementedError
