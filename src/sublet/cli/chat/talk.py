"""What a chat does with the daemon: reads, follows, says; comes back by itself when the daemon does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sublet.cli.chat import invited
from sublet.cli.chat.lines import TAG_CHARS
from sublet.cli.chat.timeline import Timeline
from sublet.cli.options.entities import load_names
from sublet.cli.options.room_files import download, media_of, typed_path, upload
from sublet.cli.options.rooms import LAST, pick
from sublet.cli.rendering.delegations import span
from sublet.cli.rendering.entity_names import EntityNames
from sublet.cli.rendering.rooms import room_name
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_fields import MAX_BODY_CHARS, OneMessage, OneRoom
from sublet.daemon.api.room_marks import (
    ADD_REACTION,
    DELETE_MESSAGE,
    EDIT_MESSAGE,
    GET_MESSAGE,
    MODERATE_MESSAGE,
    REMOVE_REACTION,
    DeleteMessage,
    EditMessage,
    Moderate,
    React,
)
from sublet.daemon.api.room_messages import READ_MESSAGES, SEND_MESSAGE, MessageView, ReadMessages, SendMessage
from sublet.daemon.api.room_news import GET_NEWEST, WATCH_ROOMS, WatchRooms
from sublet.daemon.api.room_people import GET_READING, MARK_READ, MarkRead
from sublet.daemon.api.room_presence import (
    LIST_PRESENCE,
    LOAD_DRAFT,
    SAVE_DRAFT,
    SET_PRESENCE,
    PresenceView,
    SaveDraft,
    SetPresence,
)
from sublet.daemon.api.rooms import GET_ROOM, INVITE_TO_ROOM, InviteToRoom, RoomDetail
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

PAGE: Final = 100
WAIT_SECONDS: Final = 20.0
AGAIN_SECONDS: Final = 1.0
TYPING_SECONDS: Final = 3.0
"""How often it is told that something is being written."""
PRESENCE: Final = "presence"
DRAFTS: Final = "drafts"
MAX_SINGLE: Final = 20
"""Messages that are fetched one by one; for more the last page is read."""
GONE: Final = frozenset({LocalCode.DAEMON_UNAVAILABLE, LocalCode.UNAVAILABLE})
_REF_KEYS: Final = ("ref_id", "target_ref", "new_ref_id")


@dataclass(frozen=True, slots=True)
class Aim:
    """What is typed next: an answer to a message, or what it says from now on."""

    kind: str
    ref_id: str


class Talk:
    """A room, as it is followed.

    Args:
        control: the daemon.
        room: the room as it was found.
        names: of entities.
        changed: is called when something else is to be seen.
    """

    def __init__(self, control: Control, room: RoomDetail, names: EntityNames, changed: Callable[[], None]) -> None:
        self._control = control
        self._changed = changed
        self.room = room
        self.names = names
        self.timeline = Timeline(names)
        self.aim: Aim | None = None
        self.away = ""
        """Why nothing comes just now; empty while the daemon answers."""
        self.present: list[PresenceView] = []
        """Who is there."""
        self._typing = False
        self._typing_told = 0.0
        self._telling = asyncio.Lock()
        self._cursor: int | None = None
        self._read_to: str | None = None
        self._older: asyncio.Lock = asyncio.Lock()
        self._has_all = False

    @property
    def room_id(self) -> str:
        """The room's id."""
        return self.room.room_id

    async def begin(self) -> None:
        """Read the last messages, and find out up to where they were read before."""
        reading = await self._control.call(GET_READING, OneRoom(room_id=self.room_id))
        mine = reading.readers.get(self.names.me)
        if reading.unread and isinstance(mine, dict):
            self.timeline.unread_after = str(mine.get("last_read_ref"))
        await self._reload()

    async def draft(self) -> str:
        """Return what was begun to be written earlier, in rooms that keep that."""
        if DRAFTS not in self._extensions:
            return ""
        return (await self._control.call(LOAD_DRAFT, OneRoom(room_id=self.room_id))).body

    async def keep_draft(self, text: str) -> None:
        """Keep what has been begun to be written, for the next time."""
        if DRAFTS in self._extensions:
            request = SaveDraft(room_id=self.room_id, body=text[:MAX_BODY_CHARS])
            await self._control.call(SAVE_DRAFT, request)

    async def follow(self) -> None:
        """Take what happens, until cancelled; where the daemon is gone, wait for it."""
        while True:
            try:
                await self._step()
            except SubletError as error:
                if error.code not in GONE:
                    raise
                self.away = "the daemon is away; waiting for it"
                self._changed()
                await asyncio.sleep(AGAIN_SECONDS)

    async def _step(self) -> None:
        if self._cursor is None or self.away:
            await self._reload()
            self.away = ""
            self._changed()
        # Somebody who writes may stop without a word, which is looked after soon.
        wait = TYPING_SECONDS if self.typing else WAIT_SECONDS
        request = WatchRooms(since=self._cursor, wait=wait, room_id=self.room_id)
        found = await self._control.call(WATCH_ROOMS, request)
        self._cursor = found.cursor
        await self._take(found.events)
        before = self.present
        await self._look_around()
        if found.events or self.present != before:
            self._changed()
        await self.mark_read()

    async def _reload(self) -> None:
        # The cursor first, so that nothing falls between it and what is read.
        self._cursor = (await self._control.call(GET_NEWEST, Nothing())).cursor
        self.room = await self._control.call(GET_ROOM, OneRoom(room_id=self.room_id))
        self.names = self.timeline.names = await load_names(self._control)
        request = ReadMessages(room_id=self.room_id, limit=PAGE, peek=True)
        page = await self._control.call(READ_MESSAGES, request)
        self.timeline.show_page(page)
        await self._look_around()

    async def _look_around(self) -> None:
        if PRESENCE in self._extensions:
            self.present = await self._control.call(LIST_PRESENCE, OneRoom(room_id=self.room_id))

    @property
    def _extensions(self) -> set[str]:
        enabled = self.room.config.get("enabled_extensions")
        return {str(name) for name in enabled} if isinstance(enabled, list) else set()

    @property
    def typing(self) -> list[str]:
        """Names of who else is writing something."""
        return [self.names.short(one.entity) for one in self.present if one.typing and one.entity != self.names.me]

    @property
    def here(self) -> list[str]:
        """Names of who else is there."""
        return [self.names.short(one.entity) for one in self.present if one.entity != self.names.me]

    async def tell_typing(self, typing: bool) -> None:
        """Tell the others whether something is being written; the same again is told only now and then.

        What is told last is what holds last: one call is under way at a time, and those that wait for it tell what
        holds by then.
        """
        self._typing = typing
        if PRESENCE not in self._extensions:
            return
        async with self._telling:
            now = time.monotonic()
            known = now - self._typing_told < TYPING_SECONDS if self._typing else self._typing_told == 0
            if known:
                return
            self._typing_told = now if self._typing else 0.0
            await self._control.call(SET_PRESENCE, SetPresence(room_id=self.room_id, typing=self._typing))

    async def _take(self, events: list[dict[str, Any]]) -> None:
        refs: dict[str, None] = {}
        config = False
        for event in events:
            kind = str(event.get("kind"))
            config = config or kind.startswith("room.")
            refs |= dict.fromkeys(str(event[key]) for key in _REF_KEYS if isinstance(event.get(key), str))
            self._tell(kind, event)
        if config:
            self.room = await self._control.call(GET_ROOM, OneRoom(room_id=self.room_id))
        if len(refs) > MAX_SINGLE:
            await self._reload()
            return
        for ref_id in refs:
            try:
                one = await self._control.call(GET_MESSAGE, OneMessage(room_id=self.room_id, ref_id=ref_id))
            except SubletError as error:
                if error.code in GONE:
                    raise
                continue  # taken out of the room since then
            if self.timeline.get(ref_id) is not None or ref_id in _new(events):
                self.timeline.put([one])

    def _tell(self, kind: str, event: dict[str, Any]) -> None:
        who = self.names.short(str(event.get("entity", "")))
        if kind == "room.member.joined":
            self.timeline.remark(f"* {who} is a member now")
        elif kind == "room.member.left":
            by = self.names.short(str(event.get("by", "")))
            self.timeline.remark(f"* {who} has left" if by == who else f"* {who} was removed by {by}")
        elif kind == "room.equivocation":
            self.timeline.remark(f"* {who} has signed two different things for one place; neither is shown")
        elif kind == "room.rolled_back":
            self.timeline.remark(f"* {who}'s daemon has less of this room than it has signed before")
        elif kind == "room.root_contradicted":
            self.timeline.remark(f"* {who}'s daemon {_lie(event.get('how'))}")
        elif kind == "room.agents_ended":
            turns = event.get("turns")
            self.timeline.remark(f"* agents have taken {turns} turns without a person, and are silent until one speaks")
        elif kind == "room.clock_differs":
            self.timeline.remark(f"* {_clock_of(who, event.get('ahead_seconds'))}")
        elif kind == "room.knocked":
            words = clean_line(str(event.get("text", "")), 200)
            self.timeline.remark(f"* {who} asks to be let in: {words}  (/invite {who})")

    async def older(self) -> None:
        """Read what is before all that is here."""
        if self._has_all or self._older.locked() or self.timeline.oldest is None:
            return
        async with self._older:
            request = ReadMessages(room_id=self.room_id, limit=PAGE, before=self.timeline.oldest, peek=True)
            page = await self._control.call(READ_MESSAGES, request)
            self._has_all = len(page) < PAGE
            self.timeline.put_older(page)
        self._changed()

    async def mark_read(self) -> None:
        """Say that what is at the end was read, while the end is seen."""
        last = self.timeline.newest
        if last is not None and last != self._read_to and self.timeline.follows:
            await self._control.call(MARK_READ, MarkRead(room_id=self.room_id, ref_id=last))
            self._read_to = last

    # What is said and done

    async def say(self, text: str) -> None:
        """Say something, or what the aim says; a text that was not taken is in the error."""
        if len(text) > MAX_BODY_CHARS:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"over {MAX_BODY_CHARS} characters", "Send it as a file.")
        aim, self.aim = self.aim, None
        if aim is not None and aim.kind == "edit":
            await self.edit(aim.ref_id, text)
            return
        await self.send(text, reply_to=aim.ref_id if aim is not None else None)

    async def send(self, text: str, *, reply_to: str | None = None) -> None:
        """Send a message."""
        request = SendMessage(room_id=self.room_id, body=text, reply_to=reply_to)
        await self._control.call(SEND_MESSAGE, request)
        self._said()

    def _said(self) -> None:
        self.timeline.unread_after = None
        self.timeline.to_end()

    async def attach(self, typed: str) -> None:
        """Send a file of this machine, as an answer where the aim says so."""
        kept = await upload(self._control, self.room_id, typed_path(typed))
        reply_to = self.aim.ref_id if self.aim is not None and self.aim.kind == "reply" else None
        name = kept.filename
        request = SendMessage(room_id=self.room_id, body=name, media=kept.blob_hash, filename=name, reply_to=reply_to)
        await self._control.call(SEND_MESSAGE, request)
        self.aim = None
        self._said()

    async def save(self, given: str, path: str | None) -> str:
        """Write the file of a message, of the last one that has one where ``given`` is ``last``; return where."""
        with_file = [one for one in self.timeline.messages if media_of(one) is not None]
        one = with_file[-1] if given == LAST and with_file else self.message(given)
        return await download(self._control, self.room_id, one, path and str(typed_path(path).absolute()))

    async def edit(self, ref_id: str, text: str) -> None:
        """Let a message say something else."""
        await self._control.call(EDIT_MESSAGE, EditMessage(room_id=self.room_id, ref_id=ref_id, body=text))

    async def react(self, ref_id: str, emoji: str, *, remove: bool) -> None:
        """React to a message, or take that back."""
        request = React(room_id=self.room_id, ref_id=ref_id, emoji=emoji[:64])
        await self._control.call(REMOVE_REACTION if remove else ADD_REACTION, request)

    async def delete(self, ref_id: str) -> None:
        """Delete a message."""
        await self._control.call(DELETE_MESSAGE, DeleteMessage(room_id=self.room_id, ref_id=ref_id))

    async def moderate(self, ref_id: str, action: str, reason: str = "") -> None:
        """Take a message down, pin it, or pin it no longer."""
        message = {"room_id": self.room_id, "ref_id": ref_id}
        request = Moderate.model_validate({**message, "action": action, "reason": reason[:500]})
        await self._control.call(MODERATE_MESSAGE, request)

    async def invite(self, given: str) -> None:
        """Invite somebody."""
        request = InviteToRoom(room_id=self.room_id, entity=self.names.entity(given))
        await self._control.call(INVITE_TO_ROOM, request)

    async def invitations(self) -> str:
        """Return the invitations into other rooms that wait."""
        return await invited.waiting(self._control, self.names)

    async def answer_invitation(self, given: str, *, accept: bool) -> str:
        """Come into another room that one is invited to, or say no, and return what became of it."""
        return await invited.answer(self._control, self.names, given, accept=accept)

    async def who(self) -> str:
        """Return the members, how far they have read, and who knocks."""
        reading = await self._control.call(GET_READING, OneRoom(room_id=self.room_id))
        lines = [f"{room_name(self.room.name, self.names)}  {self.room_id}  ({self.room.policy})"]
        for entity, role in sorted(self.room.roles.items()):
            place = reading.readers.get(entity)
            ref_id = str(place.get("last_read_ref")) if isinstance(place, dict) else ""
            read = ", has read all" if ref_id and ref_id == self.timeline.newest else ""
            there = next((one for one in self.present if one.entity == entity), None)
            if there is not None:
                read += ", here" if not there.status else f", here: {there.status}"
            if self.room.invited.get(entity) == "pending":
                read = ", has not accepted yet"
            lines.append(f"  {self.names.short(entity)}  {role}{read}  {entity}")
        lines += [
            f"  {self.names.short(entity)} asks to be let in: {text}" for entity, text in self.room.knocks.items()
        ]
        return "\n".join(lines)

    def message(self, given: str, *, own: bool = False) -> MessageView:
        """Return the message that a tag, an id or ``last`` names.

        Raises:
            SubletError: ``NOT_FOUND``, ``INVALID_ARGUMENT``.
        """
        return pick(self.timeline.messages, given, of=self.names.me if own and given == LAST else None)

    def is_tag(self, given: str) -> bool:
        """Tell whether a word names a message that is here."""
        end = given.upper()
        return given == LAST or (
            len(given) >= TAG_CHARS and any(one.ref_id.endswith(end) for one in self.timeline.messages)
        )


def _new(events: list[dict[str, Any]]) -> set[str]:
    return {str(event.get("ref_id")) for event in events if event.get("kind") == "message.new"}


def _lie(how: object) -> str:
    """Return how what a member has signed of the room is contradicted, in words."""
    if how == "forked":
        return "has signed two states of this room that exclude each other"
    return "has signed that it holds more of this room than it shows"


def _clock_of(who: str, ahead_seconds: object) -> str:
    """Return what is said of a clock that has begun to differ, or is right again."""
    if not isinstance(ahead_seconds, int) or not ahead_seconds:
        return f"the clock of {who}'s daemon is right again"
    way = "ahead of" if ahead_seconds > 0 else "behind"
    return f"the clock of {who}'s daemon is {span(abs(ahead_seconds))} {way} this machine's"
