"""Operations on conversations: rooms by address rather than by id, for those who know no ids yet.

An address is a room's id or name, ``@entity``, ``AGENT@NODE``, or a peer's name. Rooms and messages are those of
``api.rooms`` and ``api.room_messages``, with what makes another question needless.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import Asks, AsksInside, Hides, Nothing, Operation
from sublet.daemon.api.room_fields import ChannelName, MessageId, RefId
from sublet.daemon.api.room_files import BlobHash
from sublet.daemon.api.room_messages import MessageSent, MessageView, RecipientReceipt, Words
from sublet.daemon.api.rooms import RoomChange, RoomDetail
from sublet.policy.decision import Action

MAX_ADDRESS_CHARS = 400
MAX_ATTACHMENTS = 16
MAX_QUERY_CHARS = 500
MAX_PAGE_MESSAGES = 50
DEFAULT_PAGE_MESSAGES = 20

Address = Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS_CHARS)]
Cursor = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[0-9A-Za-z:./-]+$")]


class Reach(Request):
    """Whom to talk with; with ``open`` a conversation of two is opened where there is none."""

    to: Address
    open: bool = False


class WhichConversation(Request):
    """A room by its address."""

    room: Address


class Invite(WhichConversation):
    """Make somebody a member, by their address: ``@entity``, ``AGENT@PEER``, or a peer's name for its person."""

    entity: Address


class WhichMessage(WhichConversation):
    """Names a message in the room or channel that the request names."""

    ref_id: MessageId


class Say(Words):
    """Say something to whoever ``to`` names; ``attachments`` are hashes of files that the room has."""

    to: Address
    attachments: Annotated[list[BlobHash], Field(max_length=MAX_ATTACHMENTS)] = Field(default_factory=list)


class ReadConversation(Request):
    """A page of a room, of a thread of it, or of a channel over all rooms; ``before`` is an earlier ``next_cursor``."""

    room: Address | None = None
    thread: RefId | None = None
    channel: ChannelName | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_MESSAGES)] = DEFAULT_PAGE_MESSAGES
    before: Cursor | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.room is None) == (self.channel is None) or (self.thread is not None and self.room is None):
            raise ValueError("give room, or room and thread, or channel")
        return self


class SearchMessages(Request):
    """Words that a message holds, by their beginnings; ``before`` is an earlier ``next_cursor``."""

    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]
    room: Address | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_MESSAGES)] = DEFAULT_PAGE_MESSAGES
    before: RefId | None = None


class Reached(View):
    """The room in which somebody is talked with."""

    room_id: str


class Conversation(RoomDetail):
    """A room, how much of it the caller has not read, and whom it is with."""

    unread: int
    direct_with: str | None = Field(default=None, description="The other one, where it is a direct conversation")

    @property
    def creator(self) -> str:
        """Who has opened it."""
        return str(self.config.get("created_by", ""))


class MessageFile(View):
    """The file that a message comes with, as its author calls it; nobody believes name and type."""

    blob_hash: str
    filename: str
    mime_type: str
    size_bytes: int


class ConversationMessage(MessageView):
    """A message, where it stands, and what belongs to it."""

    room_id: str
    own: bool = Field(description="Whether the caller has written it")
    attachments: list[str] = Field(default_factory=list, description="Hashes of the files that it comes with")
    receipts: list[RecipientReceipt] = Field(default_factory=list, description="Of the caller's own, where one is read")

    @property
    def reply_to(self) -> str | None:
        """The message that it answers."""
        return self._named("reply_to", "ref_id")

    @property
    def thread(self) -> str | None:
        """The first message of its thread."""
        return self._named("thread", "root")

    @property
    def channels(self) -> list[str]:
        """Where else it is found."""
        found = self.ext.get("channels")
        return [str(name) for name in found] if isinstance(found, list) else []

    @property
    def file(self) -> MessageFile | None:
        """What it says of its file; None also where it says that in another shape."""
        try:
            return MessageFile.model_validate(self.ext["media"])
        except (KeyError, ValidationError):
            return None

    def _named(self, extension: str, key: str) -> str | None:
        found = self.ext.get(extension)
        text = found.get(key) if isinstance(found, dict) else None
        return text if isinstance(text, str) else None


class ConversationPage(View):
    """Messages, the oldest first; ``next_cursor`` is for those before them."""

    room_id: str | None
    messages: list[ConversationMessage]
    next_cursor: str | None


class FoundMessages(View):
    """What a search has found, the newest first."""

    messages: list[ConversationMessage]
    next_cursor: str | None
    complete: bool = Field(description="Whether all messages were looked at; if not, the same search finds more later")


class MessageDelivery(MessageSent):
    """A message that is durable here, as whom it was said, and how far it has come."""

    author: str
    recipients: list[RecipientReceipt]


_UNKNOWN_BEFORE = "the room is known only once its address is read"
_READS = AsksInside(_UNKNOWN_BEFORE, (Action.ROOM_READ,))
_MAY_OPEN = AsksInside(
    f"{_UNKNOWN_BEFORE}, and may have to be opened", (Action.ROOM_READ, Action.ROOM_SEND, Action.ROOM_MANAGE)
)

REACH = Operation(
    "conversations.reach",
    "POST",
    "/v1/conversations",
    Reach,
    Reached,
    asks=_MAY_OPEN,
    summary="Return the room of an address.",
)
LIST_CONVERSATIONS = Operation(
    "conversations.list",
    "GET",
    "/v1/conversations",
    Nothing,
    list[Conversation],
    asks=Asks(Action.ROOM_READ),
    summary="Return the rooms that the caller may read, those with unread messages first.",
    hides=Hides(Action.ROOM_READ, "room_id"),
)
GET_CONVERSATION = Operation(
    "conversations.get",
    "GET",
    "/v1/conversation",
    WhichConversation,
    Conversation,
    asks=_READS,
    summary="Return one of them, by id, name or whom it is with.",
)
SAY = Operation(
    "conversations.say",
    "POST",
    "/v1/conversation/messages",
    Say,
    MessageDelivery,
    asks=_MAY_OPEN,
    summary="Say something; a direct conversation is found or opened. It is durable once this is answered.",
    status=201,
)
INVITE = Operation(
    "conversations.invite",
    "POST",
    "/v1/conversation/members",
    Invite,
    RoomChange,
    asks=AsksInside(_UNKNOWN_BEFORE, (Action.ROOM_READ, Action.ROOM_MANAGE)),
    summary="Make somebody a member of a room, both by address.",
)
READ_CONVERSATION = Operation(
    "conversations.read",
    "GET",
    "/v1/conversation/messages",
    ReadConversation,
    ConversationPage,
    asks=_READS,
    summary="Return a page of what was said.",
)
SEARCH_MESSAGES = Operation(
    "conversations.search",
    "GET",
    "/v1/messages",
    SearchMessages,
    FoundMessages,
    asks=_READS,
    summary="Return messages that hold all words of a query, of the rooms that the caller may read.",
    hides=Hides(Action.ROOM_READ, "room_id", "messages"),
)
READ_MESSAGE = Operation(
    "conversations.message",
    "GET",
    "/v1/conversation/messages/{ref_id}",
    WhichMessage,
    ConversationMessage,
    asks=_READS,
    summary="Return one message, with its receipts where it is the caller's own.",
)
