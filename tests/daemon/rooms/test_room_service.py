"""The operations on rooms: policy first, by room, and always as the caller's own entity."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_fields import OneRoom
from sublet.daemon.api.room_messages import READ_MESSAGES, SEND_MESSAGE, ReadMessages, SendMessage
from sublet.daemon.api.room_news import WATCH_ROOMS, WatchRooms
from sublet.daemon.api.rooms import (
    CREATE_ROOM,
    GET_ROOM,
    INVITE_TO_ROOM,
    LEAVE_ROOM,
    LIST_ROOMS,
    WHOAMI,
    CreateRoom,
    InviteToRoom,
)
from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.rooms.addressing import Addresses
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.finding import RoomFinder
from sublet.daemon.rooms.message_service import MessageService
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.news_service import NewsService
from sublet.daemon.rooms.room_service import RoomService
from sublet.daemon.rooms.speaking import Speaking
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import entity_domain
from sublet.tasks import Service, Services
from support.decisions import KeptDecisions, gatekeeper
from support.pairing import side
from support.rooms import ANY_BUS

pytestmark = pytest.mark.anyio
HUMAN, HOST = Subject("human"), Subject("mcp", "claude")


@asynccontextmanager
async def service(directory: Path, log: KeptDecisions | None = None) -> AsyncIterator[OperationTable]:
    port = BusPort(ANY_BUS, None)
    try:
        async with side(directory, 1) as half, anyio.create_task_group() as group:
            messaging = Messaging(half.identity, directory, port, half.peers, half.link, MessagingConfig())
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            speaking = Speaking(messaging, half.identity.node_id)
            gate = gatekeeper(half.journal, log=log or KeptDecisions())
            finder = RoomFinder(gate, speaking, Addresses(lambda name: None, lambda node: False))
            yield OperationTable(
                RoomService(gate, speaking, finder), MessageService(gate, speaking), NewsService(gate, speaking, finder)
            )
            group.cancel_scope.cancel()
    finally:
        port.close()


async def test_a_host_sees_a_room_once_it_is_a_member_and_speaks_as_itself(tmp_path: Path) -> None:
    async with service(tmp_path) as rooms:
        hers, its = [(await rooms.call(WHOAMI, Nothing(), caller)).entity_id for caller in (HUMAN, HOST)]
        room = (await rooms.call(CREATE_ROOM, CreateRoom(name="Work"), HUMAN)).room_id
        assert await rooms.call(LIST_ROOMS, Nothing(), HOST) == []
        with pytest.raises(SubletError):
            await rooms.call(READ_MESSAGES, ReadMessages(room_id=room), HOST)
        invited = await rooms.call(INVITE_TO_ROOM, InviteToRoom(room_id=room, entity=its), HUMAN)
        assert (invited.name, invited.entity) == ("Work", its)
        sent = await rooms.call(SEND_MESSAGE, SendMessage(room_id=room, body="done"), HOST)
        await rooms.call(SEND_MESSAGE, SendMessage(room_id=room, body="thanks", reply_to=sent.ref_id), HUMAN)
        said = await rooms.call(READ_MESSAGES, ReadMessages(room_id=room), HOST)
        assert [(one.author, one.body) for one in said] == [(its, "done"), (hers, "thanks")]
        assert said[1].ext["reply_to"] == {"ref_id": sent.ref_id}
        found = await rooms.call(WATCH_ROOMS, WatchRooms(since=0, room_id=room), HOST)
        assert [event["kind"] for event in found.events].count("message.new") == 2
        assert (await rooms.call(WATCH_ROOMS, WatchRooms(since=found.cursor), HOST)).events == []
        assert (await rooms.call(GET_ROOM, OneRoom(room_id=room), HOST)).roles == {hers: "owner", its: "member"}
        left = await rooms.call(LEAVE_ROOM, OneRoom(room_id=room), HOST)
        assert (left.name, left.entity) == ("Work", its)
        assert await rooms.call(LIST_ROOMS, Nothing(), HOST) == []


@pytest.mark.parametrize("kind", ["peer", "a2a", "agent"])
async def test_nobody_else_does_anything_in_rooms(tmp_path: Path, kind: str) -> None:
    async with service(tmp_path) as rooms:
        caller = Subject(kind, "bob")  # type: ignore[arg-type]
        for call in (
            rooms.call(WHOAMI, Nothing(), caller),
            rooms.call(LIST_ROOMS, Nothing(), caller),
            rooms.call(CREATE_ROOM, CreateRoom(name="Work"), caller),
            rooms.call(WATCH_ROOMS, WatchRooms(), caller),
        ):
            with pytest.raises(SubletError) as refused:
                await call
            assert refused.value.code is LocalCode.POLICY_DENIED
    assert not (tmp_path / "messaging.db").exists(), "who is refused does not even begin it"


async def test_what_is_no_id_of_a_room_reaches_no_engine(tmp_path: Path) -> None:
    async with service(tmp_path) as rooms:
        for wrong in ("", "*", "../config", "a/b"):
            with pytest.raises(SubletError) as refused:
                await rooms.call(GET_ROOM, OneRoom(room_id=wrong), HUMAN)
            assert refused.value.code is LocalCode.INVALID_ARGUMENT


async def test_sending_is_written_down_before_it_is_done_and_reading_without_waiting(tmp_path: Path) -> None:
    log = KeptDecisions()
    async with service(tmp_path, log) as rooms:
        room = (await rooms.call(CREATE_ROOM, CreateRoom(name="Work"), HUMAN)).room_id
        await rooms.call(READ_MESSAGES, ReadMessages(room_id=room), HUMAN)
        durable = len(log.durable)
        await rooms.call(SEND_MESSAGE, SendMessage(room_id=room, body="hello"), HUMAN)
        assert len(log.durable) == durable + 1
        assert "hello" not in str(log.entries)


async def test_nobody_who_does_not_exist_is_invited(tmp_path: Path) -> None:
    """D43, of the own daemon."""
    async with service(tmp_path) as rooms:
        me = (await rooms.call(WHOAMI, Nothing(), HUMAN)).entity_id
        room = (await rooms.call(CREATE_ROOM, CreateRoom(name="Work"), HUMAN)).room_id
        phantom = f"@nosuchagent:{entity_domain(me)}"
        with pytest.raises(SubletError) as refused:
            await rooms.call(INVITE_TO_ROOM, InviteToRoom(room_id=room, entity=phantom), HUMAN)
        assert refused.value.code is LocalCode.NOT_FOUND
        assert set((await rooms.call(GET_ROOM, OneRoom(room_id=room), HUMAN)).roles) == {me}
