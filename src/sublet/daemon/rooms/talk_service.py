"""``TalkApi``: talking by address, pages, news and watches, for agents that know no ids yet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio

from sublet.daemon.api.talk_models import (
    MAX_NEWS,
    MAX_NEWS_CHARS,
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
    WatchedChannels,
    WatchedRef,
    Watches,
)
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations.asking import operations
from sublet.daemon.rooms.addressing import MAX_SHOWN_CHARS, Addresses, direct_name, direct_with
from sublet.daemon.rooms.answered import Answered
from sublet.daemon.rooms.entities import daemon_of
from sublet.daemon.rooms.lent_rooms import is_closed
from sublet.daemon.rooms.speaking import Speaking
from sublet.daemon.rooms.talk_views import about, message_of, receipts_of, shortened
from sublet.policy.model import Action, Resource, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId, entity_domain
from sublet.protocol.text import clean_line

NEWS_MESSAGE_KEYS: Final = ("new_ref_id", "ref_id", "watched_ref")
"""What names the message that an event is about, the nearest first."""
RECEIPT_SECONDS: Final = 1.0
"""How long an answer waits for the message to be delivered."""
MAX_TEXT_BYTES: Final = 1 << 20
"""Of a file that is shown as text."""
TELLING: Final = ("message.", "reaction.", "watch.", "moderation.", "room.member.")
"""What events that are news to an agent begin with; others say nothing, or nothing that these do not."""

if TYPE_CHECKING:
    from sublet.messaging.delivery.receipts import MessageReceipts


@operations
class TalkService:
    """Implements ``TalkApi``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
        addresses: reads whom a message is for.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking, addresses: Addresses) -> None:
        self._gate = gate
        self._speaking = speaking
        self._addresses = addresses
        self._opening = asyncio.Lock()
        self._answered = Answered()

    async def speaks_as(self, caller: Subject) -> str:
        """``TalkApi.speaks_as``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        return self._speaking.entity(caller)

    async def reach(self, request: Reach, caller: Subject) -> Reached:
        """``TalkApi.reach``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        return Reached(room_id=await self._room(request.to, caller, open_for=0 if request.open else None))

    async def say(self, request: Say, caller: Subject) -> Said:
        """``TalkApi.say``."""
        size = len(request.body.encode("utf-8", "surrogatepass"))
        # Before anything is looked up, so that who may speak nowhere learns of nothing.
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = await self._room(request.to, caller, open_for=size)
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=size)
        files = [_hash(one) for one in request.attachments]
        given = {
            "reply_to": request.reply_to,
            "thread": request.thread,
            "channels": request.channels or None,
            # A message comes with one file (EXT-10); further ones are named by its content.
            "media": files[0] if files else None,
        }
        ext = {name: value for name, value in given.items() if value is not None}
        sent = await self._speaking.call(
            caller,
            "message.send",
            room_id=room_id,
            body=request.body,
            **({"media_refs": files} if files else {}),
            **({"ext": ext} if ext else {}),
        )
        receipts = await self._receipts(room_id, sent["ref_id"], caller, RECEIPT_SECONDS)
        return Said(
            room_id=room_id,
            ref_id=sent["ref_id"],
            created_at=sent["created_at"],
            author=self._speaking.entity(caller),
            receipt=receipts.receipt.value,
            recipients=receipts_of(receipts),
        )

    async def read_page(self, request: ReadTalk, caller: Subject) -> TalkPage:
        """``TalkApi.read_page``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        paging = {"limit": request.limit, "before": request.before}
        if request.channel is not None:
            page = await self._speaking.call(caller, "channels.refs", channel=request.channel, **paging)
            refs = [ref for ref in page["refs"] if self._may_read(caller, ref["room_id"])]
            return self._page(None, refs, page["next_cursor"], caller)
        room_id = await self._room(str(request.room), caller)
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        if request.thread is not None:
            page = await self._speaking.call(caller, "threads.list", room_id=room_id, root=request.thread, **paging)
        else:
            page = await self._speaking.call(caller, "timeline.list", room_id=room_id, **paging)
        return self._page(room_id, page["refs"], page["next_cursor"], caller)

    async def read_message(self, room: str, ref_id: str, caller: Subject) -> TalkMessage:
        """``TalkApi.read_message``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = await self._room(room, caller)
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        ref = await self._speaking.call(caller, "timeline.get_ref", room_id=room_id, ref_id=ref_id)
        message = message_of(ref, self._speaking.entity(caller))
        if not message.own:
            return message
        receipts = await self._receipts(room_id, ref_id, caller, 0)
        return message.model_copy(update={"receipts": receipts_of(receipts)})

    async def read_attachment(self, room: str, ref_id: str, caller: Subject) -> TalkMessage:
        """``TalkApi.read_attachment``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        message = await self.read_message(room, ref_id, caller)
        file = message.file
        if file is None:
            raise SubletError(LocalCode.NOT_FOUND, "this message comes with no file", "read_messages shows files.")
        elsewhere = f"A person keeps it by: sublet attach {message.room_id} --get {message.ref_id}"
        if file.size_bytes > MAX_TEXT_BYTES:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"it has more than {MAX_TEXT_BYTES >> 10} KiB, so it is not shown",
                elsewhere,
            )
        found = await self._speaking.call(caller, "media.get", room_id=message.room_id, blob_hash=file.blob_hash)
        try:
            text = found.decode()
        except UnicodeDecodeError:
            raise SubletError(LocalCode.INVALID_ARGUMENT, "it is no text in UTF-8", elsewhere) from None
        return message.model_copy(update={"body": text})

    async def talk_rooms(self, caller: Subject) -> list[TalkRoom]:
        """``TalkApi.talk_rooms``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        found = [
            await self._shown(room["room_id"], caller)
            for room in await self._speaking.call(caller, "room.list")
            if self._may_read(caller, room["room_id"])
        ]
        return sorted(found, key=lambda room: (not room.unread, room.name))

    async def talk_room(self, room: str, caller: Subject) -> TalkRoom:
        """``TalkApi.talk_room``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = await self._room(room, caller)
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        return await self._shown(room_id, caller)

    async def news(self, request: Follow, caller: Subject) -> News:
        """``TalkApi.news``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = None if request.room is None else await self._room(request.room, caller)
        if room_id is not None:
            await self._gate.ask(caller, Action.ROOM_READ, room_id)
        service, me = await self._speaking.service(), self._speaking.entity(caller)
        cursor, missed, until = request.since, False, anyio.current_time() + request.wait
        if cursor is not None and not request.peek:
            # Who asks for what comes after has received what came before.
            cursor = await self._answered.take_up(service, me, cursor, room_id)
        while True:
            left = max(0.0, until - anyio.current_time())
            found = await service.watch(me, cursor, left, room_id)
            telling = [row for row in found["events"] if self._concerns(row, caller, request.peek)]
            shown, cursor, missed = telling[:MAX_NEWS], found["cursor"], missed or found["missed"]
            if len(telling) > MAX_NEWS:
                cursor = int(shown[-1]["cursor"])
            if shown or anyio.current_time() >= until:
                events = [await self._event(row, caller) for row in shown]
                if not request.peek:
                    for answered in (*(event.cursor for event in events), cursor):
                        self._answered.note(me, answered, room_id)
                return News(events=events, cursor=cursor, more=len(telling) > MAX_NEWS, missed=missed)

    async def newest(self, caller: Subject) -> int:
        """``TalkApi.newest``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        return await (await self._speaking.service()).cursor()

    async def set_watch(self, request: SetWatch, caller: Subject) -> Watches:
        """``TalkApi.set_watch``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = await self._room(request.room, caller)
        # A watch is written into the room for all to see.
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=0)
        if request.ref_id is not None:
            flags = request.model_dump(include={"reason", "on_content_edit", "on_reply", "on_thread", "on_reaction"})
            await self._speaking.call(caller, "watch.set", room_id=room_id, ref_id=request.ref_id, **flags)
        else:
            scope = "this_room" if request.this_room_only else "all_rooms"
            await self._speaking.call(caller, "watch.set", room_id=room_id, channels=request.channels, scope=scope)
        return await self._watches(caller)

    async def unset_watch(self, request: UnsetWatch, caller: Subject) -> Watches:
        """``TalkApi.unset_watch``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = await self._room(request.room, caller)
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=0)
        ended = await self._speaking.call(caller, "watch.unset", room_id=room_id, ref_id=request.ref_id)
        return (await self._watches(caller)).model_copy(update={"removed": ended["removed"]})

    async def watches(self, caller: Subject) -> Watches:
        """``TalkApi.watches``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        return await self._watches(caller)

    # Rooms

    async def _room(self, given: str, caller: Subject, open_for: int | None = None) -> RoomId:
        """Return the room that an address names.

        Args:
            given: the address.
            caller: who asks.
            open_for: bytes that are to be said; a room for two is then opened where there is none.
        """
        found = self._addresses.read(given, await self._speaking.call(caller, "room.list"))
        if found.room_id is not None:
            return found.room_id
        assert found.entity is not None
        me = self._speaking.entity(caller)
        if found.entity == me:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"{me} is you", "Name somebody else.")
        async with self._opening:
            known = await self._direct(me, found.entity, caller)
            if known is not None:
                return known
            if open_for is None:
                what = f"there is no conversation with {found.entity} yet"
                raise SubletError(LocalCode.NOT_FOUND, what, "send_message opens one.")
            await self._gate.ask(caller, Action.ROOM_MANAGE, "*")
            await self._gate.ask(caller, Action.ROOM_SEND, "*", size_bytes=open_for)
            await self._require(found.entity, caller)
            name = direct_name(me, found.entity)
            made = await self._speaking.call(caller, "room.create", name=name, invite=[found.entity])
            return str(made["room_id"])

    async def _require(self, entity: EntityId, caller: Subject) -> None:
        """Refuse to open a conversation with nobody.

        A daemon that can't be reached now is not asked: what is said waits for it.

        Raises:
            SubletError: ``NOT_FOUND``: no such daemon is paired, or it says that it has nobody of that name.
        """
        domain, shown = entity_domain(entity), clean_line(entity, MAX_SHOWN_CHARS)
        if domain == entity_domain(self._speaking.entity(caller)):
            await self._speaking.call(caller, "identity.get_pubkey", entity_id=entity)
            return
        if not self._addresses.is_paired(domain):
            what = f"no paired daemon is {clean_line(domain, MAX_SHOWN_CHARS)!r}"
            raise SubletError(LocalCode.NOT_FOUND, what, "See: sublet peers")
        if await self._answers(entity, caller) or not await self._answers(daemon_of(domain), caller):
            return
        if await self._answers(entity, caller):  # whose daemon had only just begun
            return
        raise SubletError(
            LocalCode.NOT_FOUND,
            f"there is no {shown} there",
            "See its agents: `sublet peers show NAME`, or the tool directory.",
        )

    async def _answers(self, entity: EntityId, caller: Subject) -> bool:
        """Tell whether an entity is there now and shows that it holds its key."""
        try:
            await self._speaking.call(caller, "identity.verify_peer", entity_id=entity)
        except SubletError:
            return False
        return True

    async def _direct(self, me: EntityId, other: EntityId, caller: Subject) -> RoomId | None:
        """Return the room of just these two that one of them has opened; of several, the oldest."""
        name = direct_name(me, other)
        rooms = await self._speaking.call(caller, "room.list")
        for room in sorted((room for room in rooms if room["name"] == name), key=lambda room: str(room["room_id"])):
            config = await self._speaking.call(caller, "room.get", room_id=room["room_id"])
            if set(config["members"]) == {me, other} and config["config"].get("created_by") in (me, other):
                return str(room["room_id"])
        return None

    async def _shown(self, room_id: RoomId, caller: Subject) -> TalkRoom:
        found = await self._speaking.call(caller, "room.get", room_id=room_id)
        receipts = await self._speaking.call(caller, "receipts.summary", room_id=room_id)
        me = self._speaking.entity(caller)
        members = {entity: str(member["role"]) for entity, member in found["members"].items()}
        other = direct_with(found, me)
        return TalkRoom(
            room_id=room_id,
            name=found["name"],
            creator=str(found["config"].get("created_by", "")),
            policy=found["policy"],
            role=found["role"],
            members=members,
            # Nobody can leave a receipt in a room that is closed.
            unread=0 if is_closed(found["config"]) else receipts["unread"],
            direct_with=other if other is not None and set(members) == {me, other} else None,
        )

    # What was said

    async def _receipts(self, room_id: RoomId, ref_id: str, caller: Subject, wait: float) -> MessageReceipts:
        """Return how far a message has come, after a while in which it may have been delivered."""
        from sublet.messaging.delivery.receipts import Receipt

        delivery, me = (await self._speaking.service()).delivery, self._speaking.entity(caller)
        return await delivery.receipts(me, room_id, ref_id, Receipt.DELIVERED if wait else None, wait)

    def _page(
        self, room_id: RoomId | None, refs: list[dict[str, Any]], cursor: str | None, caller: Subject
    ) -> TalkPage:
        me = self._speaking.entity(caller)
        return TalkPage(room_id=room_id, messages=[message_of(ref, me) for ref in refs], next_cursor=cursor)

    def _concerns(self, row: Mapping[str, Any], caller: Subject, peek: bool) -> bool:
        """Tell whether an event is news: in a room that the caller may read, of another's doing."""
        me = self._speaking.entity(caller)
        if row["kind"] == "room.member.joined" and row.get("entity") != me and not peek:
            return False  # who else is in a room stands in the directory
        doer = row.get("author") or row.get("by") or (row.get("entity") if row["kind"] == "room.member.left" else None)
        return (
            str(row["kind"]).startswith(TELLING)
            and (peek or doer != me)
            and self._may_read(caller, str(row["room_id"]))
        )

    async def _event(self, row: Mapping[str, Any], caller: Subject) -> TalkEvent:
        me = self._speaking.entity(caller)
        ref_id = next((str(row[key]) for key in NEWS_MESSAGE_KEYS if key in row), None)
        message = None
        if ref_id is not None:
            try:
                ref = await self._speaking.call(caller, "timeline.get_ref", room_id=row["room_id"], ref_id=ref_id)
                message = shortened(message_of(ref, me), MAX_NEWS_CHARS)
            except SubletError:
                message = None  # taken out of the room since then
        return TalkEvent(
            cursor=row["cursor"], kind=row["kind"], room_id=row["room_id"], data=about(row), message=message
        )

    async def _watches(self, caller: Subject) -> Watches:
        found = await self._speaking.call(caller, "watch.list")
        return Watches(
            refs=[WatchedRef.model_validate(one) for one in found["refs"]],
            channels=[WatchedChannels.model_validate(one) for one in found["channels"]],
        )

    def _may_read(self, caller: Subject, room_id: str) -> bool:
        """Tell whether a list may hold something of a room; nothing is written down."""
        return self._gate.foresee(caller, Action.ROOM_READ, Resource(room_id)).decision.allowed


def _hash(given: str) -> str:
    return given if given.startswith("sha256:") else f"sha256:{given}"
