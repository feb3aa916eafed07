"""Every field of a request about rooms does what it says, with a person and a host of one daemon as members."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.daemon.api import (
    conversations,
    room_files,
    room_marks,
    room_members,
    room_messages,
    room_news,
    room_people,
    room_presence,
    room_texts,
    rooms,
)
from sublet.daemon.api.operation import Nothing, Operation
from sublet.daemon.api.room_fields import OneMessage, OneRoom
from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.rooms.addressing import Addresses
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.conversation_service import ConversationService
from sublet.daemon.rooms.file_service import RoomFileService
from sublet.daemon.rooms.finding import RoomFinder
from sublet.daemon.rooms.mark_service import RoomMarkService
from sublet.daemon.rooms.member_service import RoomMemberService
from sublet.daemon.rooms.message_service import MessageService
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.news_service import NewsService
from sublet.daemon.rooms.people_service import RoomPeopleService
from sublet.daemon.rooms.presence_service import RoomPresenceService
from sublet.daemon.rooms.room_service import RoomService
from sublet.daemon.rooms.speaking import Speaking
from sublet.daemon.rooms.text_service import RoomTextService
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.tasks import Service, Services
from support.decisions import KeptDecisions, gatekeeper
from support.pairing import side
from support.rooms import ANY_BUS

pytestmark = pytest.mark.anyio
HUMAN, HOST = Subject("human"), Subject("mcp", "claude")


@dataclass
class Two:
    """A person and a host, who are members of one room."""

    table: OperationTable
    room: str = ""
    human: str = ""
    host: str = ""

    async def call(self, operation: Operation[Any, Any], who: Subject = HUMAN, **fields: Any) -> Any:
        return await self.table.call(operation, operation.request(**fields), who)

    async def say(self, body: str, who: Subject = HUMAN, **fields: Any) -> str:
        sent = await self.call(room_messages.SEND_MESSAGE, who, room_id=self.room, body=body, **fields)
        assert isinstance(sent.ref_id, str)
        return sent.ref_id

    async def bodies(self, who: Subject = HUMAN, **fields: Any) -> list[str]:
        found = await self.call(room_messages.READ_MESSAGES, who, room_id=self.room, **fields)
        return [message.body for message in found]

    async def detail(self) -> Any:
        return await self.call(rooms.GET_ROOM, room_id=self.room)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with both(tmp_path) as made:
        yield made


@asynccontextmanager
async def both(directory: Path) -> AsyncIterator[Two]:
    port = BusPort(ANY_BUS, None)
    try:
        async with side(directory, 1) as half, anyio.create_task_group() as group:
            messaging = Messaging(half.identity, directory, port, half.peers, half.link, MessagingConfig())
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            gate = gatekeeper(half.journal, log=KeptDecisions())
            speaking = Speaking(messaging, half.identity.node_id)
            finder = RoomFinder(gate, speaking, Addresses(lambda name: None, lambda node: False))
            found = Two(
                OperationTable(
                    RoomService(gate, speaking, finder),
                    RoomMemberService(gate, speaking),
                    MessageService(gate, speaking),
                    RoomMarkService(gate, speaking),
                    RoomPeopleService(gate, speaking),
                    RoomPresenceService(gate, speaking),
                    RoomFileService(gate, speaking),
                    RoomTextService(gate, speaking),
                    ConversationService(gate, speaking, finder),
                    NewsService(gate, speaking, finder),
                )
            )
            found.human, found.host = [(await found.call(rooms.WHOAMI, who)).entity_id for who in (HUMAN, HOST)]
            found.room = (await found.call(rooms.CREATE_ROOM, name="Work")).room_id
            await found.call(rooms.INVITE_TO_ROOM, room_id=found.room, entity=found.host)
            yield found
            group.cancel_scope.cancel()
    finally:
        port.close()


async def test_a_page_of_messages_is_what_was_asked_for(two: Two) -> None:
    first = await two.say("first", channels=["news"])
    second = await two.say("second", thread=first)
    third = await two.say("third", HOST)
    assert await two.bodies(limit=2) == ["second", "third"]
    assert await two.bodies(before=third) == ["first", "second"]
    assert await two.bodies(thread=first) == ["second"]
    assert await two.bodies(channel="news") == ["first"]
    begun = await two.say("fourth")
    await two.say("answer", thread=begun)
    threads = room_messages.LIST_THREADS
    assert len(await two.call(threads, room_id=two.room)) == 2
    assert len(await two.call(threads, room_id=two.room, limit=1)) == 1
    assert [one.ref_id for one in await two.call(threads, room_id=two.room, before=begun)] == [first]
    assert second != third


async def test_reading_marks_as_read_unless_one_only_looks(two: Two) -> None:
    await two.say("hello")
    for peek, unread in ((True, 1), (False, 0)):
        await two.bodies(HOST, peek=peek)
        reading = await two.call(room_people.GET_READING, HOST, room_id=two.room)
        assert reading.unread == unread


async def test_a_message_answers_one_of_another_room_and_comes_with_a_file(two: Two) -> None:
    other = (await two.call(rooms.CREATE_ROOM, name="Other")).room_id
    there = await two.call(room_messages.SEND_MESSAGE, room_id=other, body="there")
    content = base64.b64encode(b"a = 1\n")
    kept = await two.call(
        room_files.UPLOAD_FILE, room_id=two.room, filename="a.py", media_type="text/x-python", data=content
    )
    assert (kept.filename, kept.media_type, kept.size) == ("a.py", "text/x-python", 6)
    ref = await two.say(
        "*look*", format="markdown", reply_to=there.ref_id, reply_room=other, media=kept.blob_hash, filename="b.py"
    )
    (message,) = await two.call(room_messages.READ_MESSAGES, room_id=two.room)
    assert (message.ref_id, message.format) == (ref, "markdown")
    assert message.ext["reply_to"]["room_id"] == other
    assert (message.ext["media"]["blob_hash"], message.ext["media"]["filename"]) == (kept.blob_hash, "b.py")
    fetched = await two.call(room_files.FETCH_FILE, HOST, room_id=two.room, blob_hash=kept.blob_hash)
    assert base64.b64decode(fetched.data) == b"a = 1\n"


async def test_receipts_are_waited_for_until_they_are_as_wanted(two: Two) -> None:
    ref = await two.say("hello")
    asked: dict[str, Any] = {"room_id": two.room, "ref_id": ref}
    read: list[str] = []

    async def wait() -> None:
        found = await two.call(room_messages.GET_RECEIPTS, **asked, until="read", wait=30)
        read.append(found.receipt)

    with anyio.fail_after(20):  # the wait itself ends after 30 s, whatever was read
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            await two.call(room_people.MARK_READ, HOST, room_id=two.room, ref_id=ref)
    assert read == ["read"]


async def test_marks_on_messages_are_as_they_were_made(two: Two) -> None:
    mine, pinned = await two.say("mine"), await two.say("pinned")
    await two.call(room_marks.ADD_REACTION, HOST, room_id=two.room, ref_id=mine, emoji="🎉")
    await two.call(room_marks.EDIT_MESSAGE, room_id=two.room, ref_id=mine, body="<b>yours</b>", format="html")
    await two.call(room_marks.MODERATE_MESSAGE, room_id=two.room, ref_id=pinned, action="pin")
    (first, _) = await two.call(room_messages.READ_MESSAGES, room_id=two.room)
    assert (first.body, first.format) == ("<b>yours</b>", "html")
    assert "🎉" in str(first.about)
    redacted: dict[str, Any] = {"room_id": two.room, "ref_id": mine, "action": "redact", "reason": "too loud"}
    await two.call(room_marks.MODERATE_MESSAGE, **redacted)
    shown = await two.call(room_marks.GET_MESSAGE, room_id=two.room, ref_id=mine)
    assert shown.about["redacted"] == {"by": two.human, "reason": "too loud"}
    await two.call(room_marks.DELETE_MESSAGE, room_id=two.room, ref_id=pinned)
    assert (await two.call(room_marks.GET_MESSAGE, room_id=two.room, ref_id=pinned)).body is None


async def test_a_message_or_its_files_are_purged(two: Two) -> None:
    kept = await two.call(
        room_files.UPLOAD_FILE, room_id=two.room, filename="a", media_type="text/plain", data=base64.b64encode(b"a")
    )
    ref = await two.say("mine", media=kept.blob_hash)
    of_files = await two.call(room_marks.PURGE_MESSAGE, room_id=two.room, ref_id=ref, files=True)
    assert (of_files.changed, of_files.kept_files) == (True, [])
    shown = await two.call(room_marks.GET_MESSAGE, room_id=two.room, ref_id=ref)
    assert (shown.body, "media" in shown.ext, shown.about["purged"]["what"]) == ("mine", False, "files")
    assert (await two.call(room_marks.PURGE_MESSAGE, room_id=two.room, ref_id=ref)).changed
    shown = await two.call(room_marks.GET_MESSAGE, room_id=two.room, ref_id=ref)
    assert (shown.body, shown.about["purged"]["what"]) == (None, "message")
    assert not (await two.call(room_marks.PURGE_MESSAGE, room_id=two.room, ref_id=ref)).changed
    assert (await two.call(room_messages.GET_RECEIPTS, room_id=two.room, ref_id=ref)).purged
    with pytest.raises(SubletError) as refused:
        await two.call(room_marks.PURGE_MESSAGE, HOST, room_id=two.room, ref_id=ref)
    assert refused.value.code is LocalCode.POLICY_DENIED, "an agent purges by a rule that says so"


async def test_a_room_is_configured_as_was_asked(two: Two) -> None:
    before = (await two.detail()).config
    assert "watch" in before["enabled_extensions"]
    await two.call(
        room_members.CONFIGURE_ROOM,
        room_id=two.room,
        name="Play",
        policy="knock",
        disable=["watch"],
        levels={"events_default": 10, "default": 5, "admin": 60},
        powers={two.host: 20},
        roles={two.host: "admin"},
        fields={"timeline.max_refs_per_window": 50, "ext.channels.power_level": 40},
    )
    found = await two.detail()
    assert (found.name, found.policy) == ("Play", "knock")
    assert "watch" not in found.config["enabled_extensions"]
    levels = {name: found.config[f"power_levels.{name}"] for name in ("events_default", "default", "admin")}
    assert levels == {"events_default": 10, "default": 5, "admin": 60}
    assert found.config["ext.channels.power_level"] == 40
    assert found.powers[two.host] == 20
    assert found.roles[two.host] == "admin"
    assert found.config["timeline"]["max_refs_per_window"] == 50
    await two.call(room_members.CONFIGURE_ROOM, room_id=two.room, enable=["watch"])
    assert "watch" in (await two.detail()).config["enabled_extensions"]


async def test_who_is_removed_hears_why_and_who_is_banned_comes_back_no_more(two: Two) -> None:
    two.room = (await two.call(rooms.CREATE_ROOM, name="Open", policy="open")).room_id
    await two.call(rooms.JOIN_ROOM, HOST, room_id=two.room)
    removed: dict[str, Any] = {"room_id": two.room, "entity": two.host}
    await two.call(room_members.KICK_MEMBER, **removed, reason="too loud")
    assert two.host not in (await two.detail()).roles
    assert "too loud" in str((await two.call(room_news.WATCH_ROOMS, HOST, since=0)).events)
    await two.call(room_members.BAN_ENTITY, **removed)
    with pytest.raises(SubletError):
        await two.call(rooms.JOIN_ROOM, HOST, room_id=two.room)
    await two.call(room_members.UNBAN_ENTITY, **removed)
    await two.call(rooms.JOIN_ROOM, HOST, room_id=two.room)
    assert two.host in (await two.detail()).roles


async def test_who_is_outside_knocks_with_a_word(two: Two) -> None:
    two.room = (await two.call(rooms.CREATE_ROOM, name="Closed", policy="knock")).room_id
    await two.call(room_members.KNOCK_AT_ROOM, HOST, room_id=two.room, text="let me in")
    assert (await two.detail()).knocks == {two.host: "let me in"}
    await two.call(room_members.DECLINE_KNOCK, room_id=two.room, entity=two.host)
    assert (await two.detail()).knocks == {}


async def test_a_room_is_made_as_was_asked(two: Two) -> None:
    made = await two.call(rooms.CREATE_ROOM, name="Open", policy="open", encryption="transport_only")
    room = made.room_id
    found = await two.call(rooms.GET_ROOM, room_id=room)
    assert (found.name, found.policy, found.encryption) == ("Open", "open", "transport_only")
    await two.call(rooms.JOIN_ROOM, HOST, room_id=room)
    assert two.host in (await two.call(rooms.GET_ROOM, room_id=room)).roles


@pytest.mark.parametrize("switch", ["on_content_edit", "on_reply", "on_thread", "on_reaction"])
async def test_a_watch_tells_of_what_it_is_set_for(two: Two, switch: str) -> None:
    ref = await two.say("watched")
    others = {"on_content_edit": False, "on_reply": False, "on_thread": False, "on_reaction": False}
    watch: dict[str, Any] = {"room": two.room, "ref_id": ref, "reason": "for the release"}
    set_ = await two.call(room_news.SET_WATCH, HOST, **watch, **{**others, switch: True})
    (told,) = set_.refs
    assert told.reason == "for the release"
    assert {name: getattr(told, name) for name in others} == {**others, switch: True}
    left = await two.call(room_news.UNSET_WATCH, HOST, room=two.room, ref_id=ref)
    assert left.refs == []


async def test_channels_are_watched_in_one_room_or_in_all(two: Two) -> None:
    scopes: list[str] = []
    for only in (True, False):
        found = await two.call(room_news.SET_WATCH, HOST, room=two.room, channels=["news"], this_room_only=only)
        (told,) = found.channels
        assert told.channels == ["news"]
        scopes.append(told.scope)
    assert len(set(scopes)) == 2
    left = await two.call(room_news.UNSET_WATCH, HOST, room=two.room)
    assert left.channels == []


async def test_news_are_waited_for_and_received_once(two: Two) -> None:
    start = (await two.call(room_news.GET_NEWEST, HOST)).cursor
    async with anyio.create_task_group() as group:
        found: list[Any] = []

        async def wait() -> None:
            found.append(await two.call(room_news.FOLLOW_NEWS, HOST, since=start, wait=30, room=two.room))

        group.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        await two.say("hello")
    assert [event.message.body for event in found[0].events if event.message is not None] == ["hello"]
    own = await two.call(room_news.FOLLOW_NEWS, since=start, peek=True)
    assert "hello" in str(own)
    assert "hello" not in str(await two.call(room_news.FOLLOW_NEWS, since=start))
    events = await two.call(room_news.WATCH_ROOMS, HOST)
    again = await two.call(room_news.WATCH_ROOMS, HOST, acknowledge=events.cursor)
    assert events.events
    assert again.events == []


async def test_events_are_waited_for(two: Two) -> None:
    start = (await two.call(room_news.GET_NEWEST, HOST)).cursor
    other = (await two.call(rooms.CREATE_ROOM, HOST, name="Other")).room_id
    await two.call(room_messages.SEND_MESSAGE, HOST, room_id=other, body="elsewhere")
    async with anyio.create_task_group() as group:
        found: list[Any] = []

        async def wait() -> None:
            found.append(await two.call(room_news.WATCH_ROOMS, HOST, since=start, wait=30, room_id=two.room))

        group.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        await two.say("hello")
    assert [event["kind"] for event in found[0].events] == ["message.new"]


async def test_what_one_says_of_oneself_is_found(two: Two) -> None:
    await two.call(room_people.UPDATE_PROFILE, HOST, fields={"display_name": "Claude"}, body="I mend builds")
    for operation in (room_people.GET_PROFILE, room_people.FIND_PROFILE):
        shown = await two.call(operation, entity=two.host)
        assert (shown.entity_id, shown.frontmatter["display_name"]) == (two.host, "Claude")
        assert shown.body.strip() == "I mend builds"
    found = await two.call(room_people.SEARCH_PROFILES, query="builds")
    assert [one.entity_id for one in found] == [two.host]


async def test_a_picture_is_shown_as_it_was_sent(two: Two) -> None:
    header = struct.pack(">I4sIIBBBBB", 13, b"IHDR", 8, 8, 8, 2, 0, 0, 0)
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + bytes(20))
    await two.call(room_people.SET_PICTURE, HOST, data=picture)
    shown = await two.call(room_people.GET_PICTURE, entity=two.host)
    assert (shown.media_type, shown.data) == ("image/png", picture.decode())
    assert shown.digest == hashlib.sha256(base64.b64decode(picture)).hexdigest()
    known = await two.call(room_people.GET_PICTURE, entity=two.host, known=shown.digest)
    assert (known.digest, known.media_type, known.data) == (shown.digest, None, None)
    other = await two.call(room_people.GET_PICTURE, entity=two.host, known="0" * 64)
    assert other == shown


async def test_presence_and_drafts_are_kept_as_they_were_told(two: Two) -> None:
    ref = await two.say("hello")
    await two.call(room_presence.SET_PRESENCE, HOST, room_id=two.room, status="testing", typing=True)
    there = {one.entity: one for one in await two.call(room_presence.LIST_PRESENCE, HOST, room_id=two.room)}
    assert (there[two.host].status, there[two.host].typing) == ("testing", True)
    await two.call(room_presence.SAVE_DRAFT, room_id=two.room, body="not yet", reply_to=ref)
    draft = await two.call(room_presence.LOAD_DRAFT, room_id=two.room)
    assert (draft.body, draft.reply_to) == ("not yet", ref)


async def test_a_shared_text_is_edited_where_it_says(two: Two) -> None:
    ref = await two.say("one two")
    one: dict[str, Any] = {"room_id": two.room, "ref_id": ref}
    shared = await two.call(room_texts.SHARE_TEXT, **one, mode="explicit", editors=[two.host])
    assert (shared.mode, shared.editors) == ("explicit", [two.host])
    edited = await two.call(
        room_texts.EDIT_TEXT, HOST, **one, base="one two", edits=[{"index": 4, "delete": 3, "insert": "three"}]
    )
    assert edited.text == "one three"
    with pytest.raises(SubletError):
        await two.call(room_texts.EDIT_TEXT, HOST, **one, base="one two", edits=[{"index": 0, "insert": "x"}])


async def test_whom_one_talks_with_is_found_by_address(two: Two) -> None:
    with pytest.raises(SubletError):
        await two.call(conversations.REACH, to=two.host)
    opened = await two.call(conversations.REACH, to=two.host, open=True)
    kept = await two.call(
        room_files.UPLOAD_FILE,
        room_id=two.room,
        filename="a.txt",
        media_type="text/plain",
        data=base64.b64encode(b"a"),
    )
    first = await two.call(conversations.SAY, to="Work", body="flaky first", channels=["news"])
    await two.call(
        conversations.SAY,
        HOST,
        to=two.room,
        body="*second*",
        format="markdown",
        reply_to=first.ref_id,
        thread=first.ref_id,
        attachments=[kept.blob_hash],
    )
    page = await two.call(conversations.READ_CONVERSATION, room="Work")
    assert [message.body for message in page.messages] == ["flaky first", "*second*"]
    second = page.messages[1]
    assert (second.format, second.reply_to) == ("markdown", first.ref_id)
    assert kept.blob_hash in second.model_dump_json()
    short = await two.call(conversations.READ_CONVERSATION, room="Work", limit=1)
    assert [message.body for message in short.messages] == ["*second*"]
    earlier = await two.call(conversations.READ_CONVERSATION, room="Work", limit=1, before=short.next_cursor)
    assert [message.body for message in earlier.messages] == ["flaky first"]
    thread = await two.call(conversations.READ_CONVERSATION, room="Work", thread=first.ref_id)
    assert [message.body for message in thread.messages] == ["*second*"]
    channel = await two.call(conversations.READ_CONVERSATION, channel="news")
    assert [message.body for message in channel.messages] == ["flaky first"]
    assert (await two.call(conversations.GET_CONVERSATION, room="Work")).room_id == two.room
    whole = await two.call(conversations.READ_MESSAGE, room="Work", ref_id=first.ref_id)
    assert whole.body == "flaky first"
    assert opened.room_id != two.room


async def test_an_answer_to_another_room_names_it(two: Two) -> None:
    other = await two.call(rooms.CREATE_ROOM, name="Other")
    there = await two.call(conversations.SAY, to="Other", body="there")
    await two.call(conversations.SAY, to="Work", body="here", reply_to=there.ref_id, reply_room="Other")
    (message,) = (await two.call(conversations.READ_CONVERSATION, room="Work")).messages
    assert other.room_id in message.model_dump_json()
    await two.call(conversations.INVITE, room="Other", entity=two.host)
    assert two.host in (await two.call(rooms.GET_ROOM, room_id=other.room_id)).roles


async def test_messages_are_searched_for_page_by_page(two: Two) -> None:
    other = await two.call(rooms.CREATE_ROOM, name="Other")
    for room in ("Work", "Other"):
        for number in (1, 2):
            await two.call(conversations.SAY, to=room, body=f"flaky {number} of {room}")
    await two.call(conversations.SAY, to="Work", body="calm")
    search = conversations.SEARCH_MESSAGES
    assert len((await two.call(search, query="flaky")).messages) == 4
    found = await two.call(search, query="flaky", room="Other", limit=1)
    assert [message.body for message in found.messages] == ["flaky 2 of Other"]
    more = await two.call(search, query="flaky", room="Other", limit=1, before=found.next_cursor)
    assert [message.body for message in more.messages] == ["flaky 1 of Other"]
    assert other.room_id


async def test_one_message_is_asked_for_by_its_room_and_name(two: Two) -> None:
    ref = await two.say("hello")
    shown = await two.table.call(room_marks.GET_MESSAGE, OneMessage(room_id=two.room, ref_id=ref), HOST)
    assert shown.body == "hello"
    assert await two.table.call(rooms.LIST_ROOMS, Nothing(), HOST)
    left = await two.table.call(rooms.LEAVE_ROOM, OneRoom(room_id=two.room), HOST)
    assert left.room_id == two.room
