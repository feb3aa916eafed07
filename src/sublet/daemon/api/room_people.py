"""Operations on people in rooms: profiles, and how far each member has read (EXT-08, EXT-13)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Base64Bytes, Field, JsonValue

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import Asks, Operation
from sublet.daemon.api.room_fields import Entity, OneRoom, RefId
from sublet.daemon.api.rooms import RoomChange
from sublet.policy.decision import Action

MAX_PROFILE_CHARS = 65_536
MAX_PROFILE_FIELDS = 64
MAX_QUERY_CHARS = 500
MAX_PICTURE_BYTES = 256 << 10
MAX_UPLOAD_BYTES = 384 << 10
"""Of a request that carries a picture of the greatest size in base 64."""


class FindProfile(Request):
    """Whose profile; one's own where nobody is named."""

    entity: Entity | None = None


class NamedProfile(Request):
    """Whose profile, by address as in ``api.conversations``; one's own where nobody is named."""

    entity: Entity | None = None


class FindPicture(FindProfile):
    """Whose picture; of one that the caller has already, ``known`` is the digest, and its bytes are not told again."""

    known: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class UpdateProfile(Request):
    """Fields to set, None for those to take away, and the text; None leaves that as it is."""

    fields: Annotated[dict[str, JsonValue], Field(max_length=MAX_PROFILE_FIELDS)] = Field(default_factory=dict)
    body: Annotated[str, Field(max_length=MAX_PROFILE_CHARS)] | None = None

    @property
    def size_bytes(self) -> int:
        """How much is said."""
        return len(self.model_dump_json().encode())


class SetPicture(Request):
    """A picture for the caller's profile: PNG, JPEG, GIF or WebP."""

    data: Annotated[Base64Bytes, Field(max_length=MAX_PICTURE_BYTES)]

    @property
    def size_bytes(self) -> int:
        """How large the picture is."""
        return len(self.data)


class PictureView(View):
    """The picture of an entity, in base 64; all are null where it has none.

    Its type is what its bytes are, whatever its owner says: PNG, JPEG, GIF or WebP.
    """

    entity_id: str
    digest: str | None = Field(description="SHA-256 of the picture; the only one told where the caller knows it")
    media_type: str | None
    data: str | None


class SearchProfiles(Request):
    """Words that a profile has to hold."""

    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]


class MarkRead(OneRoom):
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


_READING = "/v1/rooms/{room_id}/reading"
_READS = Asks(Action.ROOM_READ, "{room_id}")

GET_PROFILE = Operation(
    "profiles.get",
    "GET",
    "/v1/profile",
    FindProfile,
    ProfileView,
    asks=Asks(Action.ROOM_READ),
    summary="Return a profile.",
)
FIND_PROFILE = Operation(
    "conversations.profile",
    "GET",
    "/v1/conversation/profile",
    NamedProfile,
    ProfileView,
    asks=Asks(Action.ROOM_READ),
    summary="Return the profile of whom an address names.",
)
UPDATE_PROFILE = Operation(
    "profiles.update",
    "PATCH",
    "/v1/profile",
    UpdateProfile,
    ProfileView,
    asks=Asks(Action.ROOM_SEND, attributes=("size_bytes",)),
    summary="Change the caller's own profile, and return it.",
)
GET_PICTURE = Operation(
    "profiles.picture",
    "GET",
    "/v1/profile/picture",
    FindPicture,
    PictureView,
    asks=Asks(Action.ROOM_READ),
    summary="Return the picture of a profile, asking its owner's daemon for it where it is not here.",
)
SET_PICTURE = Operation(
    "profiles.set_picture",
    "POST",
    "/v1/profile/picture",
    SetPicture,
    ProfileView,
    asks=Asks(Action.ROOM_SEND, attributes=("size_bytes",)),
    summary="Let the caller's profile have a picture, and return the profile.",
    max_bytes=MAX_UPLOAD_BYTES,
)
SEARCH_PROFILES = Operation(
    "profiles.search",
    "GET",
    "/v1/profiles",
    SearchProfiles,
    list[ProfileView],
    asks=Asks(Action.ROOM_READ),
    summary="Return the profiles that hold all words of a query.",
)
GET_READING = Operation(
    "reading.get",
    "GET",
    _READING,
    OneRoom,
    ReadingView,
    asks=_READS,
    summary="Return how much is unread, and how far each member has read.",
)
MARK_READ = Operation(
    "reading.mark",
    "POST",
    _READING,
    MarkRead,
    RoomChange,
    asks=_READS,
    summary="Say that the caller has read a room up to a message.",
)
