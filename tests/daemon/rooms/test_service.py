"""The operations on rooms: policy first, by room, and always as the caller's own entity."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.room_models import CreateRoom, InviteToRoom, ReadMessages, SendMessage, WatchRooms
from sublet.daemon.config_file import MessagingConfig
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.service import RoomService
from sublet.daemon.rooms.speaking import Speaking
from sublet.policy.model import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.tasks import Service, Services
from support.decisions import KeptDecisions, gatekeeper
from support.pairing import side
from support.rooms import ANY_BUS

pytestmark = pytest.mark.anyio
HUMAN, HOST = Subject("human"), Subject("mcp", "claude")


@asynccontextmanager
async def service(directory: Path, log: KeptDecisions | None = None) -> AsyncIterator[RoomService]:
    port = BusPort(ANY_BUS, None)
    try:
        async with side(directory, 1) as half, anyio.create_task_group() as group:
            messaging = Messaging(half.identity, directory, port, half.peers, half.link, MessagingConfig())
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            speaking = Speaking(messaging, half.identity.node_id)
            yield RoomService(gatekeeper(half.journal, log=log or KeptDecisions()), speaking)
            group.cancel_scope.cancel()
    finally:
        port.close()


async def test_a_host_sees_a_room_once_it_is_a_member_and_speaks_as_itself(tmp_path: Path) -> None:
    async with service(tmp_path) as rooms:
        hers, its = [(await rooms.whoami(caller)).entity_id for caller in (HUMAN, HOST)]
        room = (await rooms.create_room(CreateRoom(name="Work"), HUMAN)).room_id
        assert await rooms.list_rooms(HOST) == []
        with pytest.raises(SubletError):
            await rooms.read_messages(room, ReadMessages(), HOST)
        await rooms.invite_to_room(room, InviteToRoom(entity=its), HUMAN)
        sent = await rooms.send_message(room, SendMessage(body="done"), HOST)
        await rooms.send_message(room, SendMessage(body="thanks", reply_to=sent.ref_id), HUMAN)
        said = await rooms.read_messages(room, ReadMessages(), HOST)
        assert [(one.author, one.body) for one in said] == [(its, "done"), (hers, "thanks")]
        assert said[1].ext["reply_to"] == {"ref_id": sent.ref_id}
        found = await rooms.watch_rooms(WatchRooms(since=0, room_id=room), HOST)
        assert [event["kind"] for event in found.events].count("message.new") == 2
        assert (await rooms.watch_rooms(WatchRooms(since=found.cursor), HOST)).events == []
        assert (await rooms.get_room(room, HOST)).roles == {hers: "owner", its: "member"}
        await rooms.leave_room(room, HOST)
        assert await rooms.list_rooms(HOST) == []


@pytest.mark.parametrize("kind", ["peer", "a2a", "agent"])
async def test_nobody_else_does_anything_in_rooms(tmp_path: Path, kind: str) -> None:
    async with service(tmp_path) as rooms:
        caller = Subject(kind, "bob")  # type: ignore[arg-type]
        for call in (
            rooms.whoami(caller),
            rooms.list_rooms(caller),
            rooms.create_room(CreateRoom(name="Work"), caller),
            rooms.watch_rooms(WatchRooms(), caller),
        ):
            with pytest.raises(SubletError) as refused:
                await call
            assert refused.value.code is LocalCode.POLICY_DENIED
    assert not (tmp_path / "messaging.db").exists(), "who is refused does not even begin it"


async def test_what_is_no_id_of_a_room_reaches_no_engine(tmp_path: Path) -> None:
    async with service(tmp_path) as rooms:
        for wrong in ("", "*", "../config", "a/b"):
            with pytest.raises(SubletError) as refused:
                await rooms.get_room(wrong, HUMAN)
            assert refused.value.code is LocalCode.INVALID_ARGUMENT


async def test_sending_is_written_down_before_it_is_done_and_reading_without_waiting(tmp_path: Path) -> None:
    log = KeptDecisions()
    async with service(tmp_path, log) as rooms:
        room = (await rooms.create_room(CreateRoom(name="Work"), HUMAN)).room_id
        await rooms.read_messages(room, ReadMessages(), HUMAN)
        durable = len(log.durable)
        await rooms.send_message(room, SendMessage(body="hello"), HUMAN)
        assert len(log.durable) == durable + 1
        assert "hello" not in str(log.entries)
