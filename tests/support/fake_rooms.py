"""Operations on rooms in memory, for tests of what is shown: a room whose messages a test gives it."""

from __future__ import annotations

import base64

import anyio

from sublet.daemon.api.conversations import (
    GET_CONVERSATION,
    INVITE,
    LIST_CONVERSATIONS,
    REACH,
    READ_CONVERSATION,
    READ_MESSAGE,
    SAY,
    SEARCH_MESSAGES,
    Conversation,
    ConversationMessage,
    ConversationPage,
    FoundMessages,
    Invite,
    MessageDelivery,
    Reach,
    Reached,
    ReadConversation,
    Say,
    SearchMessages,
    WhichConversation,
    WhichMessage,
)
from sublet.daemon.api.invitations import (
    ACCEPT_INVITATION,
    DECLINE_INVITATION,
    LIST_INVITATIONS,
    InvitationChange,
    InvitationView,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_fields import OneMessage, OneRoom
from sublet.daemon.api.room_files import FETCH_FILE, FetchFile, FileContent
from sublet.daemon.api.room_marks import (
    ADD_REACTION,
    DELETE_MESSAGE,
    EDIT_MESSAGE,
    PURGE_MESSAGE,
    REMOVE_REACTION,
    DeleteMessage,
    EditMessage,
    MessageChange,
    MessagePurged,
    PurgeMessage,
    React,
)
from sublet.daemon.api.room_messages import RecipientReceipt
from sublet.daemon.api.room_news import (
    FOLLOW_NEWS,
    GET_NEWEST,
    LIST_WATCHES,
    SET_WATCH,
    UNSET_WATCH,
    FollowNews,
    News,
    RoomCursor,
    RoomEvent,
    SetWatch,
    UnsetWatch,
    WatchedRef,
    Watches,
)
from sublet.daemon.api.room_people import (
    FIND_PROFILE,
    SEARCH_PROFILES,
    UPDATE_PROFILE,
    NamedProfile,
    ProfileView,
    SearchProfiles,
    UpdateProfile,
)
from sublet.daemon.api.rooms import WHOAMI, RoomChange, WhoAmI
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from support.answering import answers

ME = "@mcp:node-aaaaaaaaaaaaaaaa"
BOB = "@human:node-bbbbbbbbbbbbbbbb"
ROOM = "019a0000-0000-7000-8000-000000000001"


def message(number: int, body: str, author: str = BOB, room_id: str = ROOM) -> ConversationMessage:
    """Return a message with a ref id that follows from its number."""
    return ConversationMessage(
        room_id=room_id,
        ref_id=f"01J{number:023d}",
        author=author,
        own=author == ME,
        body=body,
        status="active",
        created_at="2026-11-28T12:00:00.000Z",
    )


class FakeRooms:
    """Holds one room with what ``hear`` was given; ``failure`` is raised by everything where it is set."""

    def __init__(self) -> None:
        self.room = Conversation(
            room_id=ROOM,
            name="Work",
            policy="invite",
            role="member",
            members=2,
            roles={ME: "member", BOB: "owner"},
            config={"created_by": BOB},
            unread=0,
        )
        self.messages: list[ConversationMessage] = []
        self.events: list[RoomEvent] = []
        self.said: list[Say] = []
        self.read: list[ReadConversation] = []
        self.set: list[SetWatch] = []
        self.changed: list[tuple[str, OneMessage]] = []
        self.invited: list[tuple[str, str]] = []
        self.invitations: list[InvitationView] = []
        self.answered: list[tuple[str, str]] = []
        self.profiles: dict[str, ProfileView] = {}
        self.files: dict[str, bytes] = {}
        self.watched: list[WatchedRef] = []
        self.callers: list[Subject] = []
        self.failure: SubletError | None = None
        self._news = anyio.Event()

    def hear(self, body: str, author: str = BOB) -> ConversationMessage:
        """Take a message as if its author had written it now."""
        new = message(len(self.messages) + 1, body, author)
        self.messages.append(new)
        self.events.append(RoomEvent(cursor=len(self.events) + 1, kind="message.new", room_id=ROOM, message=new))
        news, self._news = self._news, anyio.Event()
        news.set()
        return new

    @answers(WHOAMI)
    async def whoami(self, request: Nothing) -> WhoAmI:
        self._called()
        return WhoAmI(entity_id=ME)

    @answers(SAY)
    async def say(self, request: Say) -> MessageDelivery:
        self._called()
        self.said.append(request)
        sent = self.hear(request.body, ME)
        return MessageDelivery(
            room_id=ROOM,
            ref_id=sent.ref_id,
            created_at=sent.created_at,
            author=ME,
            recipients=[RecipientReceipt(entity=BOB, receipt="queued")],
        )

    @answers(READ_CONVERSATION)
    async def read_conversation(self, request: ReadConversation) -> ConversationPage:
        self._called()
        self.read.append(request)
        ids = [one.ref_id for one in self.messages]
        end = ids.index(request.before) if request.before is not None else len(ids)
        page = self.messages[max(0, end - request.limit) : end]
        cursor = page[0].ref_id if page and page[0] is not self.messages[0] else None
        return ConversationPage(room_id=ROOM, messages=page, next_cursor=cursor)

    @answers(READ_MESSAGE)
    async def read_message(self, request: WhichMessage) -> ConversationMessage:
        self._called()
        return next(one for one in self.messages if one.ref_id == request.ref_id)

    @answers(FETCH_FILE)
    async def fetch_file(self, request: FetchFile) -> FileContent:
        self._called()
        text = self.files.get(request.blob_hash, b"")
        return FileContent(blob_hash=request.blob_hash, data=base64.b64encode(text).decode())

    @answers(REACH)
    async def reach(self, request: Reach) -> Reached:
        self._called()
        return Reached(room_id=ROOM)

    @answers(ADD_REACTION)
    async def add_reaction(self, request: React) -> MessageChange:
        return self._changed("react", request)

    @answers(REMOVE_REACTION)
    async def remove_reaction(self, request: React) -> MessageChange:
        return self._changed("unreact", request)

    @answers(EDIT_MESSAGE)
    async def edit_message(self, request: EditMessage) -> MessageChange:
        return self._changed("edit", request)

    @answers(DELETE_MESSAGE)
    async def delete_message(self, request: DeleteMessage) -> MessageChange:
        return self._changed("delete", request)

    @answers(PURGE_MESSAGE)
    async def purge_message(self, request: PurgeMessage) -> MessagePurged:
        done = self._changed("purge", request)
        return MessagePurged(room_id=done.room_id, ref_id=done.ref_id, changed=done.changed)

    @answers(INVITE)
    async def invite(self, request: Invite) -> RoomChange:
        self._called()
        self.invited.append((request.room, request.entity))
        return RoomChange(room_id=ROOM, entity=BOB)

    @answers(LIST_INVITATIONS)
    async def list_invitations(self, request: Nothing) -> list[InvitationView]:
        self._called()
        return self.invitations

    @answers(ACCEPT_INVITATION)
    async def accept_invitation(self, request: OneRoom) -> InvitationChange:
        self._called()
        self.answered.append((request.room_id, "accept"))
        return InvitationChange(room_id=request.room_id, here=True)

    @answers(DECLINE_INVITATION)
    async def decline_invitation(self, request: OneRoom) -> InvitationChange:
        self._called()
        self.answered.append((request.room_id, "decline"))
        return InvitationChange(room_id=request.room_id)

    @answers(FIND_PROFILE)
    async def find_profile(self, request: NamedProfile) -> ProfileView:
        self._called()
        return self.profiles[request.entity or ME]

    @answers(SEARCH_PROFILES)
    async def search_profiles(self, request: SearchProfiles) -> list[ProfileView]:
        self._called()
        return [one for one in self.profiles.values() if request.query in one.body]

    @answers(UPDATE_PROFILE)
    async def update_profile(self, request: UpdateProfile) -> ProfileView:
        self._called()
        self.profiles[ME] = ProfileView(entity_id=ME, frontmatter=request.fields, body=request.body or "")
        return self.profiles[ME]

    @answers(SEARCH_MESSAGES)
    async def search_messages(self, request: SearchMessages) -> FoundMessages:
        self._called()
        found = [one for one in self.messages[::-1] if request.query in (one.body or "")]
        page = found[: request.limit]
        cursor = page[-1].ref_id if len(page) < len(found) else None
        return FoundMessages(messages=page, next_cursor=cursor, complete=True)

    def _changed(self, what: str, request: OneMessage) -> MessageChange:
        self._called()
        self.changed.append((what, request))
        return MessageChange(room_id=request.room_id, ref_id=request.ref_id)

    @answers(LIST_CONVERSATIONS)
    async def list_conversations(self, request: Nothing) -> list[Conversation]:
        self._called()
        return [self.room]

    @answers(GET_CONVERSATION)
    async def get_conversation(self, request: WhichConversation) -> Conversation:
        self._called()
        if request.room not in (ROOM, self.room.name):
            raise SubletError(LocalCode.NOT_FOUND, "there is no such room")
        return self.room

    @answers(FOLLOW_NEWS)
    async def follow(self, request: FollowNews) -> News:
        self._called()
        since = request.since if request.since is not None else 0
        with anyio.move_on_after(request.wait):
            while not any(event.cursor > since for event in self.events):
                await self._news.wait()
        found = [one for one in self.events if one.cursor > since]
        return News(events=found, cursor=len(self.events), more=False)

    @answers(GET_NEWEST)
    async def get_newest(self, request: Nothing) -> RoomCursor:
        self._called()
        return RoomCursor(cursor=len(self.events))

    @answers(SET_WATCH)
    async def set_watch(self, request: SetWatch) -> Watches:
        self._called()
        self.set.append(request)
        flags = request.model_dump(exclude={"room", "channels", "this_room_only"})
        if request.ref_id is not None:
            self.watched.append(WatchedRef(room_id=ROOM, **flags))
        return Watches(refs=self.watched, channels=[])

    @answers(UNSET_WATCH)
    async def unset_watch(self, request: UnsetWatch) -> Watches:
        self._called()
        before = len(self.watched)
        self.watched = [one for one in self.watched if one.ref_id != request.ref_id]
        return Watches(refs=self.watched, channels=[], removed=len(self.watched) < before)

    @answers(LIST_WATCHES)
    async def list_watches(self, request: Nothing) -> Watches:
        self._called()
        return Watches(refs=self.watched, channels=[])

    def _called(self) -> None:
        if self.failure is not None:
            raise self.failure
