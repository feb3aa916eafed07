"""Two daemons' rooms in this process over a real relay: registered, paired by name, and told what is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.relay import PairByName, RegisterName
from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.entities import human_of
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.relay_keeper import RelayKeeper
from sublet.daemon.rooms.relay_service import RelayService
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.tasks import Service, Services
from support.decisions import gatekeeper
from support.pairing import Side, side
from support.relay_hub import LocalDesk, RunningHub, running_hub
from support.rooms import ANY_BUS

pytestmark = pytest.mark.anyio
PERSON = Subject("human")


@dataclass
class Half:
    """One daemon's part of it."""

    side: Side
    messaging: Messaging
    keeper: RelayKeeper
    service: RelayService

    @property
    def me(self) -> str:
        """The person."""
        return human_of(self.side.identity.node_id)


@asynccontextmanager
async def half(directory: Path, number: int, running: RunningHub) -> AsyncIterator[Half]:
    async with side(directory, number) as one:
        keeper = RelayKeeper(
            one.identity.key,
            directory / "relay",
            f"tls/127.0.0.1:{running.port}",
            running.directory / "authority.pem",
            lambda: [peer.node_id for peer in one.peers.list()],
            lambda url, authority: LocalDesk(running.registry),
        )
        one.peers.listeners.append(keeper.wake)
        port = BusPort(ANY_BUS, None)
        messaging = Messaging(
            one.identity, directory, port, one.peers, one.link, MessagingConfig(), sockets=directory / "s", relay=keeper
        )
        service = RelayService(gatekeeper(one.journal), keeper, messaging, one.identity, one.peers)
        async with anyio.create_task_group() as group:
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            try:
                yield Half(one, messaging, keeper, service)
            finally:
                group.cancel_scope.cancel()
                port.close()


async def test_two_daemons_meet_by_name_and_talk_over_a_relay(tmp_path: Path) -> None:
    with running_hub(tmp_path / "relay") as running, anyio.fail_after(100):
        async with half(tmp_path / "a", 1, running) as ann, half(tmp_path / "b", 2, running) as bob:
            unnamed = await ann.service.show(Nothing(), PERSON)
            assert unnamed.entity_id is None
            told = await ann.service.register(RegisterName(name="ann", at="127.0.0.1:9"), PERSON)
            assert (told.entity_id, told.slot, told.fingerprint) == (
                "@ann:relay.test",
                "s00000",
                ann.side.identity.fingerprint,
            )
            await bob.service.register(RegisterName(name="bob"), PERSON)
            with pytest.raises(SubletError) as wrong:
                await ann.service.pair(
                    PairByName(entity_id="@bob:relay.test", name="bob", fingerprint=told.fingerprint), PERSON
                )
            assert wrong.value.code is LocalCode.KEY_CHANGED
            assert ann.side.peers.list() == []
            for one, other, name in ((ann, bob, "bob"), (bob, ann, "ann")):
                request = PairByName(
                    entity_id=f"@{name}:relay.test", name=name, fingerprint=other.side.identity.fingerprint
                )
                paired = await one.service.pair(request, PERSON)
                assert (paired.name, paired.node_id, paired.a2a_url) == (name, other.side.identity.node_id, None)
                with pytest.raises(SubletError) as twice:
                    await one.service.pair(request, PERSON)
                assert twice.value.code is LocalCode.CONFLICT
            here, there = await ann.messaging.use(), await bob.messaging.use()
            room = (await here.bus(ann.me).room.create(name="Over a relay"))["room_id"]
            await here.bus(ann.me).room.invite(room_id=room, entity=bob.me)
            while not any(one["room_id"] == room for one in await there.bus(bob.me).room.list()):
                with suppress(SubletError):  # it has not come yet
                    await there.invited.accept(room)
                await anyio.sleep(0.05)
            ref = (await here.bus(ann.me).message.send(room_id=room, body="hello"))["ref_id"]
            while (await there.bus(bob.me).timeline.list(room_id=room))["refs"] == []:
                await anyio.sleep(0.05)
            await there.bus(bob.me).message.send(room_id=room, body="hello to you")
            while len((await here.bus(ann.me).timeline.list(room_id=room))["refs"]) < 2:
                await anyio.sleep(0.05)
            for service, me in ((here, ann.me), (there, bob.me)):
                refs = (await service.bus(me).timeline.list(room_id=room))["refs"]
                assert [one["body"] for one in refs] == ["hello", "hello to you"]
                assert refs[0]["ref_id"] == ref
            shown = await ann.service.show(Nothing(), PERSON)
            assert (shown.linked, shown.remarks) == (True, [])


@pytest.mark.parametrize("name", ["bob:relay.test", "@bob:other.test", "@bob", ""])
async def test_what_is_no_name_at_our_relay_is_refused(tmp_path: Path, name: str) -> None:
    with running_hub(tmp_path / "relay") as running:
        async with half(tmp_path / "a", 1, running) as ann:
            await ann.keeper.register("ann")
            with pytest.raises(SubletError) as refused:
                await ann.service.pair(PairByName(entity_id=name, name="bob", fingerprint="SHA256:x"), PERSON)
            assert refused.value.code is LocalCode.INVALID_ARGUMENT


async def test_a_port_that_is_none_and_who_is_not_the_person_are_refused(tmp_path: Path) -> None:
    with running_hub(tmp_path / "relay") as running:
        async with half(tmp_path / "a", 1, running) as ann:
            for caller, at in ((PERSON, "nowhere"), (Subject("mcp", "claude"), None), (Subject("peer", "eve"), None)):
                with pytest.raises(SubletError) as refused:
                    await ann.service.register(RegisterName(name="ann", at=at), caller)
                assert refused.value.code in (LocalCode.INVALID_ARGUMENT, LocalCode.POLICY_DENIED)
            assert running.registry.accounts.get("ann") is None
