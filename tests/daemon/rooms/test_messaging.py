"""Messaging begins when it is needed, and its failure is nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.config.paths import Home
from sublet.daemon.health.diagnosis import diagnose
from sublet.daemon.peering.peers import Peer
from sublet.daemon.ports.peer_link import BusAddress, PeerAddress
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.entities import daemon_of, entity_of, load_entities
from sublet.daemon.rooms.known_buses import KnownBuses
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.peer_buses import _resolved
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.delivery.loops import LoopLimits
from sublet.messaging.links.keys import LinkKeys
from sublet.messaging.links.links import Links
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.tasks import Service, Services
from support.pairing import Side, side
from support.rooms import ANY_BUS

pytestmark = pytest.mark.anyio
DATABASE = "messaging.db"


@asynccontextmanager
async def running(half: Side, directory: Path) -> AsyncIterator[Messaging]:
    port = BusPort(ANY_BUS, None)
    messaging = Messaging(half.identity, directory, port, half.peers, half.link, MessagingConfig())
    try:
        async with anyio.create_task_group() as group:
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            yield messaging
            group.cancel_scope.cancel()
    finally:
        port.close()


async def test_it_begins_with_whoever_asks_and_keeps_its_keys(tmp_path: Path) -> None:
    async with side(tmp_path, 1) as half:
        me = f"@human:{half.identity.node_id}"
        async with running(half, tmp_path) as messaging:
            await anyio.lowlevel.checkpoint()
            assert not (tmp_path / DATABASE).exists()
            service = await messaging.use()
            assert await messaging.use() is service
            assert service.level == await messaging.level() is not None
            room = (await service.call(me, "room.create", name="Work"))["room_id"]
        first, again = (load_entities(tmp_path / "keys", half.identity) for _ in range(2))
        assert [one.record for one in first] == [one.record for one in again]
        assert [one.client for one in first] != [one.client for one in again]
        async with running(half, tmp_path) as messaging:
            rooms = await (await messaging.use()).call(me, "room.list")
            assert [one["room_id"] for one in rooms] == [room]


async def test_it_begins_with_the_first_peer(tmp_path: Path) -> None:
    async with side(tmp_path, 1) as half, side(tmp_path / "other", 2) as other, running(half, tmp_path):
        await half.peers.add(Peer("bob", other.identity.public_key, None, None))
        with anyio.fail_after(30):
            while not (tmp_path / DATABASE).exists():
                await anyio.sleep(0.02)


async def test_whoever_asks_is_told_why_it_does_not_begin_and_the_next_one_tries_again(tmp_path: Path) -> None:
    async with side(tmp_path, 1) as half:
        (tmp_path / DATABASE).mkdir()
        async with running(half, tmp_path) as messaging:
            with pytest.raises(SubletError) as failed:
                await messaging.use()
            assert failed.value.code is LocalCode.UNAVAILABLE
            (tmp_path / DATABASE).rmdir()
            assert await messaging.use() is not None


async def test_a_person_and_an_agent_in_a_host_are_told_apart(tmp_path: Path) -> None:
    async with side(tmp_path, 1) as half:
        node = half.identity.node_id
        known = {one.record.entity_id for one in load_entities(tmp_path / "keys", half.identity)}
        assert known == {
            entity_of(Subject("human"), node),
            entity_of(Subject("mcp", "claude"), node),
            daemon_of(node),
        }
        assert len(known) == 3


async def test_who_starts_while_a_peer_is_away_calls_where_it_was_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: PeerAddress) -> BusAddress | None:
        raise SubletError(LocalCode.PEER_UNREACHABLE, "nobody answers", "")

    port = BusPort(ANY_BUS, None)
    assert port.number is not None
    async with side(tmp_path, 1) as half, side(tmp_path / "other", 2) as other:
        caller, called = sorted((half, other), key=lambda one: one.identity.node_id)
        monkeypatch.setattr(caller.link, "bus", away)
        node, state = called.identity.node_id, tmp_path / "state"
        (state / "keys").mkdir(parents=True)
        KnownBuses(state / "bus_doors.json").keep({node: BusAddress(port.number)}, {node})
        await caller.peers.add(Peer("bob", called.identity.public_key, "http://127.0.0.1:9/", None))
        async with running(caller, state):
            key = Ed25519PrivateKey.from_private_bytes(bytes(called.identity.key))
            links = Links(LinkKeys(tmp_path / "called", key), tmp_path / "bus", port.listener)
            links.trust([caller.identity.public_key])
            network = await anyio.to_thread.run_sync(
                ZenohNetwork, Endpoints((links.inbound(caller.identity.public_key),))
            )
            try:
                with anyio.fail_after(30):
                    while network.peers() == 0:
                        await anyio.sleep(0.02)
                assert links.peers() == [caller.identity.public_key]
            finally:
                await anyio.to_thread.run_sync(network.close)
                await anyio.to_thread.run_sync(links.close)
                port.close()


async def test_a_peer_whose_bus_has_an_older_form_is_not_called_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def older(_: PeerAddress) -> BusAddress | None:
        return BusAddress(1, wire=1, version="0.0.9")

    async with side(tmp_path, 1) as half, side(tmp_path / "other", 2) as other:
        for here, there in ((half, other), (other, half)):
            monkeypatch.setattr(here.link, "bus", older)
            await here.peers.add(Peer("bob", there.identity.public_key, "http://127.0.0.1:9/", None))
            state = tmp_path / here.identity.node_id
            (state / "keys").mkdir(parents=True)
            async with running(here, state) as messaging:
                with anyio.fail_after(30):
                    while not messaging.remarks():
                        await anyio.sleep(0.02)
                [remark] = messaging.remarks()
                assert remark.startswith("bob runs an older Sublet (0.0.9), whose rooms do not reach this one's")
                assert remark.endswith("update Sublet where bob runs")
                assert messaging.buses.why_apart("bob") == remark
                entity = f"@human:{there.identity.node_id}"
                assert messaging.buses.why_apart_from(entity, messaging.home(entity)).startswith(
                    f"the daemon of {entity} runs an older Sublet"
                )
                assert (
                    messaging.buses.why_apart_from("@human:node-else", messaging.home("@human:node-else"))
                    == messaging.buses.why_apart_from("no entity", messaging.home("no entity"))
                    == ""
                )


async def test_a_peer_whose_clock_differs_is_told_of_in_status_doctor_peers_and_rooms_until_it_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nowhere(_: PeerAddress) -> BusAddress | None:
        return None

    async with side(tmp_path, 1) as here, side(tmp_path / "other", 2) as other:
        monkeypatch.setattr(here.link, "bus", nowhere)
        await here.peers.add(Peer("bob", other.identity.public_key, "http://127.0.0.1:9/", None))
        (tmp_path / "state" / "keys").mkdir(parents=True)
        entity, node = f"@human:{other.identity.node_id}", other.identity.node_id
        async with running(here, tmp_path / "state") as messaging:
            service = await messaging.use()
            for ahead_ms, told in ((40 * 86_400_000, "40 days ahead of"), (-3_600_000 * 5, "5 hours behind")):
                await service.on_engine(
                    lambda engine, ahead_ms=ahead_ms: engine.clocks._set(  # type: ignore[misc]
                        entity, None, engine.clocks._of(node), ahead_ms
                    )
                )
                with anyio.fail_after(30):
                    while not any(told in remark for remark in messaging.remarks()):
                        await anyio.sleep(0.02)
                [remark] = messaging.remarks()
                assert remark.startswith(f"the clock of bob is {told} this machine's")
                assert messaging.why_other_clock("bob") == remark
                assert messaging.other_clock_of(entity) == f"the clock of {entity}'s daemon is {told} this machine's"
                place = str(tmp_path)
                home = Home(root=place, config_dir=place, state_dir=place, runtime_dir=place, temporary=False)
                checks = await diagnose(home, {}, running=True, clocks=messaging.clocks())
                [check] = [one for one in checks if one.name == "clock of bob"]
                assert not check.ok
                assert told in check.detail
            await service.on_engine(lambda engine: engine.clocks.asked(entity, None, engine.now_ms()))
            with anyio.fail_after(30):
                while messaging.remarks():
                    await anyio.sleep(0.02)
            assert messaging.why_other_clock("bob") == messaging.other_clock_of(entity) == ""


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", "no-such-name.invalid"])
async def test_a_host_that_is_no_name_has_no_address(host: str) -> None:
    assert await _resolved(host, 1) == ()


async def test_what_config_json_says_of_rooms_is_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def network(endpoints: Endpoints) -> object:
        told.append(endpoints)
        return object()

    def service(*given: object, **named: object) -> object:
        told.append((given[6], given[7], named["daemon_bytes"]))
        raise SubletError(LocalCode.INTERNAL, "enough is known", "")

    monkeypatch.setattr("sublet.daemon.rooms.messaging.registry_of", lambda extensions: told.append(extensions))
    monkeypatch.setattr("sublet.messaging.backends.zenoh_network.ZenohNetwork", network)
    monkeypatch.setattr("sublet.messaging.service.MessagingService", service)
    settings = MessagingConfig(
        undeliverable_seconds=5.0,
        max_hops=2,
        agent_messages_per_minute=3,
        megabytes_of_daemon=4,
        extensions=["polls"],
        encryption="transport_only",
    )
    async with side(tmp_path, 1) as half:
        port = BusPort(ANY_BUS, None)
        messaging = Messaging(half.identity, tmp_path, port, half.peers, half.link, settings)
        assert messaging.encryption == "transport_only"
        async with anyio.create_task_group() as group:
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            with pytest.raises(SubletError, match="enough is known"):
                await messaging.use()
            group.cancel_scope.cancel()
        port.close()
    assert told == [["polls"], Endpoints(), (5.0, LoopLimits(2, 3), 4 << 20)]
