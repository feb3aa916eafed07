"""A ``TalkApi`` in memory, for tests of what is shown: rooms whose messages a test gives it."""

from __future__ import annotations

import anyio

from sublet.daemon.api.delivery_models import RecipientReceipt
from sublet.daemon.api.talk_models import (
    Follow,
    News,
    Reach,
    Reached,
    ReadTalk,
    Said,
    Say,
    SetWatch,
    TalkEvent,
    TalkMessage,
    TalkPage,
    TalkRoom,
    UnsetWatch,
    WatchedRef,
    Watches,
)
from sublet.policy.model import Subject
from sublet.protocol.errors import LocalCode, SubletError

ME = "@mcp:node-aaaaaaaaaaaaaaaa"
BOB = "@human:node-bbbbbbbbbbbbbbbb"
ROOM = "019a0000-0000-7000-8000-000000000001"


def message(number: int, body: str, author: str = BOB, room_id: str = ROOM) -> TalkMessage:
    """Return a message with a ref id that follows from its number."""
    return TalkMessage(
        room_id=room_id,
        ref_id=f"01J{number:023d}",
        author=author,
        own=author == ME,
        body=body,
        status="active",
        created_at="2026-11-28T12:00:00.000Z",
    )


class FakeTalkApi:
    """Holds one room with what ``hear`` was given; ``failure`` is raised by everything where it is set."""

    def __init__(self) -> None:
        self.room = TalkRoom(
            room_id=ROOM,
            name="Work",
            creator=BOB,
            policy="invite",
            role="member",
            members={ME: "member", BOB: "owner"},
            unread=0,
        )
        self.messages: list[TalkMessage] = []
        self.events: list[TalkEvent] = []
        self.said: list[Say] = []
        self.watched: list[WatchedRef] = []
        self.callers: list[Subject] = []
        self.failure: SubletError | None = None
        self._news = anyio.Event()

    def hear(self, body: str, author: str = BOB) -> TalkMessage:
        """Take a message as if its author had written it now."""
        new = message(len(self.messages) + 1, body, author)
        self.messages.append(new)
        self.events.append(TalkEvent(cursor=len(self.events) + 1, kind="message.new", room_id=ROOM, message=new))
        news, self._news = self._news, anyio.Event()
        news.set()
        return new

    async def speaks_as(self, caller: Subject) -> str:
        """``TalkApi.speaks_as``."""
        self._called(caller)
        return ME

    async def reach(self, request: Reach, caller: Subject) -> Reached:
        """``TalkApi.reach``."""
        self._called(caller)
        return Reached(room_id=ROOM)

    async def say(self, request: Say, caller: Subject) -> Said:
        """``TalkApi.say``."""
        self._called(caller)
        self.said.append(request)
        sent = self.hear(request.body, ME)
        return Said(
            room_id=ROOM,
            ref_id=sent.ref_id,
            created_at=sent.created_at,
            author=ME,
            receipt="queued",
            recipients=[RecipientReceipt(entity=BOB, receipt="queued")],
        )

    async def read_page(self, request: ReadTalk, caller: Subject) -> TalkPage:
        """``TalkApi.read_page``."""
        self._called(caller)
        ids = [one.ref_id for one in self.messages]
        end = ids.index(request.before) if request.before is not None else len(ids)
        page = self.messages[max(0, end - request.limit) : end]
        cursor = page[0].ref_id if page and page[0] is not self.messages[0] else None
        return TalkPage(room_id=ROOM, messages=page, next_cursor=cursor)

    async def read_message(self, room: str, ref_id: str, caller: Subject) -> TalkMessage:
        """``TalkApi.read_message``."""
        self._called(caller)
        return next(one for one in self.messages if one.ref_id == ref_id)

    async def read_attachment(self, room: str, ref_id: str, caller: Subject) -> TalkMessage:
        """``TalkApi.read_attachment``."""
        found = await self.read_message(room, ref_id, caller)
        return found.model_copy(update={"body": f"the text of {found.file}"})

    async def talk_rooms(self, caller: Subject) -> list[TalkRoom]:
        """``TalkApi.talk_rooms``."""
        self._called(caller)
        return [self.room]

    async def talk_room(self, room: str, caller: Subject) -> TalkRoom:
        """``TalkApi.talk_room``."""
        self._called(caller)
        if room not in (ROOM, self.room.name):
            raise SubletError(LocalCode.NOT_FOUND, "there is no such room")
        return self.room

    async def news(self, request: Follow, caller: Subject) -> News:
        """``TalkApi.news``."""
        self._called(caller)
        since = request.since if request.since is not None else 0
        with anyio.move_on_after(request.wait):
            while not any(event.cursor > since for event in self.events):
                await self._news.wait()
        found = [one for one in self.events if one.cursor > since]
        return News(events=found, cursor=len(self.events), more=False)

    async def newest(self, caller: Subject) -> int:
        """``TalkApi.newest``."""
        self._called(caller)
        return len(self.events)

    async def set_watch(self, request: SetWatch, caller: Subject) -> Watches:
        """``TalkApi.set_watch``."""
        self._called(caller)
        assert request.ref_id is not None
        flags = request.model_dump(exclude={"room", "channels", "this_room_only"})
        self.watched.append(WatchedRef(room_id=ROOM, **flags))
        return Watches(refs=self.watched, channels=[])

    async def unset_watch(self, request: UnsetWatch, caller: Subject) -> Watches:
        """``TalkApi.unset_watch``."""
        self._called(caller)
        before = len(self.watched)
        self.watched = [one for one in self.watched if one.ref_id != request.ref_id]
        return Watches(refs=self.watched, channels=[], removed=len(self.watched) < before)

    async def watches(self, caller: Subject) -> Watches:
        """``TalkApi.watches``."""
        self._called(caller)
        return Watches(refs=self.watched, channels=[])

    def _called(self, caller: Subject) -> None:
        self.callers.append(caller)
        if self.failure is not None:
            raise self.failure
