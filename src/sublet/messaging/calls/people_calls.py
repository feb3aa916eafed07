"""Calls around people in rooms, and around their files."""

from __future__ import annotations

from typing import Any, TypedDict

from sublet.messaging.calls.engine_call import engine_call
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId

MAX_FOUND = 50


class ReadingFound(TypedDict):
    """How much the caller has not read, and how far each member has."""

    unread: int
    more: bool
    readers: dict[EntityId, Any]


class Moved(TypedDict):
    """Whether it was further on."""

    moved: bool


class PresenceFound(TypedDict):
    """A member who is there, and what they say of themselves."""

    entity: EntityId
    typing: bool
    status: str | None
    window: str | None
    last_active: str | None


class ProfileFound(TypedDict):
    """What an entity says of itself."""

    entity_id: EntityId
    frontmatter: dict[str, Any]
    body: str


class PictureFound(TypedDict):
    """The picture of an entity in base 64, and its media type, which its bytes tell; both None where it has none.

    ``digest`` is what its profile names. Where the caller knows that one already, the others are None.
    """

    entity_id: EntityId
    digest: str | None
    media_type: str | None
    data: str | None


class PresenceSaid(TypedDict):
    """Whether there was something to say."""

    said: bool


class DraftFound(TypedDict):
    """What somebody has begun to write; ``body`` is empty where that is nothing."""

    body: str
    reply_to: RefId | None
    updated_at: str | None


class FileKept(TypedDict):
    """A file that a room has."""

    blob_hash: str
    filename: str
    media_type: str
    size: int


@engine_call("profile.get")
def get_profile(entity: EntityId | None = None) -> ProfileFound:
    """Return the profile of an entity, the caller's own where none is named."""
    raise NotImplementedError


@engine_call("profile.update")
def update_profile(frontmatter: dict[str, Any] | None = None, body: str | None = None) -> ProfileFound:
    """Change the caller's own profile, and return it."""
    raise NotImplementedError


@engine_call("profile.set_picture")
def set_picture(data: bytes) -> ProfileFound:
    """Let the caller's profile have a picture, and return the profile."""
    raise NotImplementedError


@engine_call("profile.picture")
def get_picture(entity: EntityId | None = None, known: str | None = None) -> PictureFound:
    """Return the picture of an entity, the caller's own where none is named; its bytes unless it is the one known."""
    raise NotImplementedError


@engine_call("discovery.search")
def search_profiles(query: str, limit: int = MAX_FOUND) -> list[ProfileFound]:
    """Return the profiles that hold all words of a query."""
    raise NotImplementedError


@engine_call("receipts.update")
def mark_read(room_id: RoomId, ref_id: RefId) -> Moved:
    """Say that the caller has read a room up to a message."""
    raise NotImplementedError


@engine_call("receipts.summary")
def get_reading(room_id: RoomId) -> ReadingFound:
    """Return how much is unread, and how far each member has read."""
    raise NotImplementedError


@engine_call("presence.set")
def set_presence(
    room_id: RoomId, status: str | None = None, typing: bool | None = None, window: str | None = None
) -> PresenceSaid:
    """Tell a room in passing what the caller is about."""
    raise NotImplementedError


@engine_call("presence.list")
def list_presence(room_id: RoomId) -> list[PresenceFound]:
    """Return the members who are there."""
    raise NotImplementedError


@engine_call("drafts.save")
def save_draft(room_id: RoomId, body: str, reply_to: RefId | None = None) -> DraftFound:
    """Keep what the caller has begun to write."""
    raise NotImplementedError


@engine_call("drafts.load")
def load_draft(room_id: RoomId) -> DraftFound:
    """Return what the caller has begun to write."""
    raise NotImplementedError


@engine_call("media.upload")
def upload_file(room_id: RoomId, data: bytes, media_type: str, filename: str) -> FileKept:
    """Put a file into a room."""
    raise NotImplementedError


@engine_call("media.get")
def get_file(room_id: RoomId, blob_hash: str) -> bytes:
    """Return a file of a room."""
    raise NotImplementedError
