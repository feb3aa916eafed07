"""Talking by address: whom it reaches, what is new to whom, and that looking consumes nothing."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.conversations import (
    INVITE,
    LIST_CONVERSATIONS,
    READ_CONVERSATION,
    READ_MESSAGE,
    SAY,
    Invite,
    ReadConversation,
    Say,
    WhichMessage,
)
from sublet.daemon.api.operation import AnswerT, Nothing, Operation, RequestT
from sublet.daemon.api.room_fields import OneRoom
from sublet.daemon.api.room_files import UPLOAD_FILE, UploadFile
from sublet.daemon.api.room_messages import GET_RECEIPTS, AskReceipts
from sublet.daemon.api.room_news import (
    FOLLOW_NEWS,
    GET_NEWEST,
    SET_WATCH,
    UNSET_WATCH,
    WATCH_ROOMS,
    FollowNews,
    SetWatch,
    UnsetWatch,
    WatchRooms,
)
from sublet.daemon.api.rooms import CREATE_ROOM, GET_ROOM, INVITE_TO_ROOM, CreateRoom, InviteToRoom
from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.rooms.addressing import Addresses, direct_name, direct_with
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.conversation_service import ConversationService
from sublet.daemon.rooms.file_service import RoomFileService
from sublet.daemon.rooms.finding import RoomFinder
from sublet.daemon.rooms.mark_service import RoomMarkService
from sublet.daemon.rooms.message_service import MessageService
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.news_service import NewsService
from sublet.daemon.rooms.room_service import RoomService
from sublet.daemon.rooms.speaking import Speaking
from sublet.mcp_server.room_pages import MAX_TEXT_BYTES, with_attachment
from sublet.messaging.service import MessagingService
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import entity_domain
from sublet.tasks import Service, Services
from support.decisions import KeptDecisions, gatekeeper
from support.pairing import side
from support.rooms import ANY_BUS, local_entity

pytestmark = pytest.mark.anyio
HUMAN, HOST = Subject("human"), Subject("mcp", "claude")
NODE = "node-bbbbbbbbbbbbbbbb"


@dataclass
class World:
    table: OperationTable
    service: MessagingService
    hers: str
    its: str

    async def call(self, operation: Operation[RequestT, AnswerT], request: RequestT, caller: Subject) -> AnswerT:
        return await self.table.call(operation, request, caller)


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    port = BusPort(ANY_BUS, None)
    try:
        async with side(directory, 1) as half, anyio.create_task_group() as group:
            messaging = Messaging(half.identity, directory, port, half.peers, half.link, MessagingConfig())
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            gate, speaking = gatekeeper(half.journal, log=KeptDecisions()), Speaking(messaging, half.identity.node_id)
            finder = RoomFinder(gate, speaking, Addresses({"bob": NODE}.get, {NODE}.__contains__))
            table = OperationTable(
                *(made(gate, speaking) for made in (MessageService, RoomFileService, RoomMarkService)),
                *(made(gate, speaking, finder) for made in (RoomService, ConversationService, NewsService)),
            )
            hers, its = [speaking.entity(caller) for caller in (HUMAN, HOST)]
            yield World(table, await speaking.service(), hers, its)
            group.cancel_scope.cancel()
    finally:
        port.close()


async def test_a_conversation_of_two_is_opened_once_and_found_from_both_sides(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        sent = await at.call(SAY, Say(to=at.its, body="hello"), HUMAN)
        assert (sent.author, [one.entity for one in sent.recipients]) == (at.hers, [at.its])
        assert sent.receipt in ("delivered", "read"), "it is durable where its recipient is at home"
        answer = await at.call(SAY, Say(to=at.hers, body="hi", reply_to=sent.ref_id), HOST)
        assert answer.room_id == sent.room_id
        page = await at.call(READ_CONVERSATION, ReadConversation(room=at.its), HUMAN)
        assert [(one.body, one.own, one.reply_to) for one in page.messages] == [
            ("hello", True, None),
            ("hi", False, sent.ref_id),
        ]
        (room,) = await at.call(LIST_CONVERSATIONS, Nothing(), HOST)
        assert (room.direct_with, room.creator) == (at.hers, at.hers)
        # A third one in it, and it is none any more.
        await at.call(INVITE_TO_ROOM, InviteToRoom(room_id=sent.room_id, entity=f"@human:{NODE}"), HUMAN)
        assert (await at.call(SAY, Say(to=at.its, body="again"), HUMAN)).room_id != sent.room_id


async def test_who_is_not_here_is_written_to_all_the_same(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        person = await at.call(SAY, Say(to="bob", body="hello"), HUMAN)
        agent = await at.call(SAY, Say(to="reviewer@bob", body="hello"), HUMAN)
        assert [(one.entity, one.receipt) for one in person.recipients] == [(f"@human:{NODE}", "queued")]
        assert [one.entity for one in agent.recipients] == [f"@reviewer:{NODE}"]
        seen = await at.call(READ_MESSAGE, WhichMessage(room=person.room_id, ref_id=person.ref_id), HUMAN)
        assert [(one.entity, one.receipt) for one in seen.receipts] == [(f"@human:{NODE}", "queued")]
        assert (await at.call(SAY, Say(to="bob/reviewer", body="and"), HUMAN)).room_id == agent.room_id
        assert (await at.call(SAY, Say(to="@reviewer:bob", body="and"), HUMAN)).room_id == agent.room_id


async def test_nobody_is_written_to_where_nobody_is(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        for nobody in ("reviewer@carol", "@human:node-cccccccccccccccc", f"@typo:{at.hers.partition(':')[2]}"):
            with pytest.raises(SubletError) as refused:
                await at.call(SAY, Say(to=nobody, body="hello?"), HUMAN)
            assert refused.value.code is LocalCode.NOT_FOUND
        assert await at.call(LIST_CONVERSATIONS, Nothing(), HUMAN) == []


@pytest.mark.parametrize("entity", ["@human:node-cccccccccccccccc", "@reviewer:node-dddddddddddddddd", "@typo:own"])
async def test_D43_nobody_is_invited_of_whom_nothing_is_known(tmp_path: Path, entity: str) -> None:
    """Neither by an id nor by an address; so no message ever waits for a member who does not exist."""
    async with world(tmp_path) as at:
        entity = entity.replace("own", entity_domain(at.hers))
        room = (await at.call(CREATE_ROOM, CreateRoom(name="Work"), HUMAN)).room_id
        for asked in (
            at.call(INVITE_TO_ROOM, InviteToRoom(room_id=room, entity=entity), HUMAN),
            at.call(INVITE, Invite(room="Work", entity=entity), HUMAN),
        ):
            with pytest.raises(SubletError) as refused:
                await asked
            assert refused.value.code is LocalCode.NOT_FOUND
            assert refused.value.hint
        assert set((await at.call(GET_ROOM, OneRoom(room_id=room), HUMAN)).roles) == {at.hers}


async def test_D43_who_was_met_is_invited_although_their_daemon_is_not_paired(tmp_path: Path) -> None:
    """Such as somebody who shares another room, by whose record their key is known here."""
    async with world(tmp_path) as at:
        room = (await at.call(CREATE_ROOM, CreateRoom(name="Work"), HUMAN)).room_id
        met = local_entity("dora", 9)
        await at.service.on_engine(lambda engine: engine.intake.learn(met.record.encode()))
        entity = met.record.entity_id
        assert (await at.call(INVITE, Invite(room="Work", entity=entity), HUMAN)).entity == entity
        assert set((await at.call(GET_ROOM, OneRoom(room_id=room), HUMAN)).roles) == {at.hers, entity}


async def test_a_name_of_a_room_that_is_also_a_peers_reaches_neither(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        await at.call(CREATE_ROOM, CreateRoom(name="bob"), HUMAN)
        for wrong, code in (
            ("bob", LocalCode.INVALID_ARGUMENT),
            ("carol", LocalCode.NOT_FOUND),
            ("@Carol", LocalCode.INVALID_ARGUMENT),
            (at.hers, LocalCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(SubletError) as refused:
                await at.call(SAY, Say(to=wrong, body="secret"), HUMAN)
            assert refused.value.code is code
        with pytest.raises(SubletError) as refused:
            await at.call(READ_CONVERSATION, ReadConversation(room=at.its), HUMAN)
        assert refused.value.code is LocalCode.NOT_FOUND


async def bodies(at: World, since: int | None = None, room: str | None = None) -> tuple[list[str | None], int]:
    found = await at.call(FOLLOW_NEWS, FollowNews(since=since, room=room), HOST)
    return [event.message.body for event in found.events if event.message], found.cursor


async def test_what_came_meanwhile_comes_first_until_its_cursor_comes_back_or_it_is_read(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        room = (await at.call(SAY, Say(to=at.its, body="first"), HUMAN)).room_id
        long = await at.call(SAY, Say(to=at.its, body="second " + "x" * 2_000), HUMAN)
        for _ in range(2):
            said, cursor = await bodies(at)
            assert said[0] == "first"
            assert "more characters" in (said[1] or "")
        assert (
            await at.call(GET_RECEIPTS, AskReceipts(room_id=room, ref_id=long.ref_id), HUMAN)
        ).receipt == "delivered"
        assert (await bodies(at, cursor))[0] == []
        assert (await at.call(GET_RECEIPTS, AskReceipts(room_id=room, ref_id=long.ref_id), HUMAN)).receipt == "read"
        assert (await bodies(at))[0] == []
        await at.call(SAY, Say(to=room, body="mine"), HOST)
        await at.call(SAY, Say(to=room, body="third"), HUMAN)
        assert (await bodies(at))[0] == ["third"]
        await at.call(READ_CONVERSATION, ReadConversation(room=room), HOST)
        with anyio.fail_after(20):
            while (await bodies(at))[0]:
                await anyio.sleep(0.01)  # what was read is taken up after the answer


async def test_the_cursor_of_one_room_takes_up_nothing_of_another(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        first = (await at.call(SAY, Say(to=at.its, body="here"), HUMAN)).room_id
        other = (await at.call(CREATE_ROOM, CreateRoom(name="other"), HUMAN)).room_id
        await at.call(INVITE_TO_ROOM, InviteToRoom(room_id=other, entity=at.its), HUMAN)
        await at.call(SAY, Say(to=other, body="there"), HUMAN)
        await at.call(SAY, Say(to=first, body="here too"), HUMAN)
        said, cursor = await bodies(at, room=first)
        assert said == ["here", "here too"]
        said, cursor = await bodies(at, cursor)
        assert said == ["there"]
        await bodies(at, 0)  # which nobody was answered
        assert (await bodies(at))[0] == ["there"]
        await bodies(at, cursor)
        assert (await bodies(at))[0] == []


async def test_a_closed_room_is_received_too_and_has_nothing_unread(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        sent = await at.call(SAY, Say(to=at.its, body="the last word"), HUMAN)
        changes = {"power_levels.events_default": 100}
        await at.service.call(at.hers, "room.update_config", room_id=sent.room_id, changes=changes)
        with pytest.raises(SubletError):
            await at.call(SAY, Say(to=sent.room_id, body="one more"), HOST)
        news = await at.call(FOLLOW_NEWS, FollowNews(), HOST)
        assert [event.message.body for event in news.events if event.message] == ["the last word"]
        assert (await at.call(FOLLOW_NEWS, FollowNews(since=news.cursor), HOST)).events == []
        assert (await at.call(FOLLOW_NEWS, FollowNews(), HOST)).events == []
        assert [room.unread for room in await at.call(LIST_CONVERSATIONS, Nothing(), HOST)] == [0]


async def test_a_wait_ends_with_what_somebody_else_says(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        room = (await at.call(SAY, Say(to=at.its, body="first"), HUMAN)).room_id
        cursor = (await at.call(GET_NEWEST, Nothing(), HOST)).cursor
        heard: list[str | None] = []

        async def wait() -> None:
            found = await at.call(FOLLOW_NEWS, FollowNews(since=cursor, wait=40, room=room), HOST)
            heard.extend(event.message.body for event in found.events if event.message)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await at.call(SAY, Say(to=room, body="own"), HOST)
            await at.call(SAY, Say(to=room, body="hers"), HUMAN)
        assert heard == ["hers"]


async def test_watches_threads_and_channels(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        sent = await at.call(SAY, Say(to=at.its, body="a task", channels=["review"]), HUMAN)
        found = await at.call(SET_WATCH, SetWatch(room=sent.room_id, ref_id=sent.ref_id, reason="working"), HOST)
        assert [(one.ref_id, one.reason) for one in found.refs] == [(sent.ref_id, "working")]
        cursor = (await at.call(GET_NEWEST, Nothing(), HOST)).cursor
        await at.call(SAY, Say(to=sent.room_id, body="more of it", thread=sent.ref_id), HUMAN)
        kinds = {event.kind for event in (await at.call(FOLLOW_NEWS, FollowNews(since=cursor), HOST)).events}
        assert kinds == {"message.new", "watch.ref_thread_reply"}
        thread = await at.call(READ_CONVERSATION, ReadConversation(room=sent.room_id, thread=sent.ref_id), HOST)
        assert [one.body for one in thread.messages] == ["more of it"]
        channel = await at.call(READ_CONVERSATION, ReadConversation(channel="review"), HOST)
        assert [(one.body, one.channels) for one in channel.messages] == [("a task", ["review"])]
        ended = await at.call(UNSET_WATCH, UnsetWatch(room=sent.room_id, ref_id=sent.ref_id), HOST)
        assert (ended.removed, ended.refs) == (True, [])
        on_channel = await at.call(SET_WATCH, SetWatch(room=sent.room_id, channels=["review"]), HOST)
        assert [one.channels for one in on_channel.channels] == [["review"]]


def test_a_room_is_of_two_only_for_those_whom_its_name_names() -> None:
    one, other = "@human:node-a", "@mcp:node-b"
    name = {"name": direct_name(other, one)}
    assert direct_with(name, one) == other
    assert direct_with(name, other) == one
    assert direct_with(name, "@human:node-c") is None
    for wrong in ("Work", "salt and pepper", f"{one} and {one}", f"{one} and pepper"):
        assert direct_with({"name": wrong}, one) is None


async def test_a_message_comes_with_files_that_its_room_has(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        room = (await at.call(CREATE_ROOM, CreateRoom(name="plans"), HUMAN)).room_id
        data = base64.b64encode(b"a plan")
        kept = await at.call(
            UPLOAD_FILE, UploadFile(room_id=room, filename="p", media_type="text/plain", data=data), HUMAN
        )
        await at.call(SAY, Say(to=room, body="see", attachments=[kept.blob_hash]), HUMAN)
        (message,) = (await at.call(READ_CONVERSATION, ReadConversation(room=room), HUMAN)).messages
        assert message.attachments == [kept.blob_hash]
        assert message.file is not None
        assert (message.file.filename, message.file.size_bytes) == ("p", 6)
        assert (await with_attachment(at.table.called_by(HUMAN), message)).body == "a plan"
        large = base64.b64encode(b"x" * (MAX_TEXT_BYTES + 1))
        for content, why in ((base64.b64encode(b"\xff\xfe"), "no text"), (large, "more than")):
            other = await at.call(
                UPLOAD_FILE, UploadFile(room_id=room, filename="o", media_type="a/b", data=content), HUMAN
            )
            said = await at.call(SAY, Say(to=room, body="no text", attachments=[other.blob_hash]), HUMAN)
            shown = await at.call(READ_MESSAGE, WhichMessage(room=room, ref_id=said.ref_id), HUMAN)
            with pytest.raises(SubletError, match=why):
                await with_attachment(at.table.called_by(HUMAN), shown)
        plain = await at.call(SAY, Say(to=room, body="none"), HUMAN)
        shown = await at.call(READ_MESSAGE, WhichMessage(room=room, ref_id=plain.ref_id), HUMAN)
        with pytest.raises(SubletError, match="comes with no file"):
            await with_attachment(at.table.called_by(HUMAN), shown)
        with pytest.raises(SubletError, match="no such file"):
            await at.call(SAY, Say(to=room, body="see", attachments=["sha256:" + "0" * 64]), HUMAN)


async def test_what_json_can_not_say_takes_no_page_from_anybody(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        sent = await at.call(SAY, Say(to=at.its, body="first"), HUMAN)
        strange = {"inner": [{"x": b"\0"}], "text": "\u00e9"}
        sending = partial(at.service.call, at.hers, "message.send", room_id=sent.room_id, body="strange")
        with pytest.raises(SubletError, match=r"has no such 'ext\.strange'"):
            await sending(ext={"strange": strange})
        await sending(ext={"strange": {"text": "\u00e9"}})
        page = await at.call(READ_CONVERSATION, ReadConversation(room=sent.room_id), HOST)
        assert [one.body for one in page.messages] == ["first", "strange"]
        assert page.messages[1].ext["strange"] == {"text": "\u00e9"}


@pytest.mark.parametrize("cursor", [10**6, 2**63 - 1, 2**63, 2**70])
async def test_a_cursor_that_no_event_has_is_refused(tmp_path: Path, cursor: int) -> None:
    async with world(tmp_path) as at:
        sent = await at.call(SAY, Say(to=at.its, body="first"), HUMAN)
        for ask in (
            lambda: at.call(FOLLOW_NEWS, FollowNews(since=cursor, wait=0.01), HOST),
            lambda: at.call(FOLLOW_NEWS, FollowNews(since=cursor, peek=True, room=sent.room_id), HOST),
            lambda: at.call(WATCH_ROOMS, WatchRooms(since=cursor), HUMAN),
            lambda: at.call(WATCH_ROOMS, WatchRooms(acknowledge=cursor), HUMAN),
        ):
            with pytest.raises(SubletError, match=r"no .*event") as refused:
                await ask()
            assert refused.value.code == LocalCode.INVALID_ARGUMENT
