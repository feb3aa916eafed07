"""What faces exchange with the daemon about people in rooms: profiles, how far each has read (EXT-08, EXT-13)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.room_member_models import Entity
from sublet.daemon.api.room_models import RefId

MAX_PROFILE_CHARS = 65_536
MAX_PROFILE_FIELDS = 64
MAX_QUERY_CHARS = 500


class FindProfile(Request):
    """Whose profile; one's own where nobody is named."""

    entity: Entity | None = None


class UpdateProfile(Request):
    """Fields to set, None for those to take away, and the text; None leaves that as it is."""

    fields: Annotated[dict[str, JsonValue], Field(max_length=MAX_PROFILE_FIELDS)] = Field(default_factory=dict)
    body: Annotated[str, Field(max_length=MAX_PROFILE_CHARS)] | None = None


class SearchProfiles(Request):
    """Words that a profile has to hold."""

    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]


class MarkRead(Request):
    """Up to which message the caller has read."""

    ref_id: RefId


class ProfileView(View):
    """What an entity says of itself."""

    entity_id: str
    frontmatter: dict[str, JsonValue]
    body: str


class ReadingView(View):
    """How much the caller has not read of a room, and how far each member has."""

    unread: int
    more: bool = Field(description="Whether there is more than that")
    readers: dict[str, JsonValue]
