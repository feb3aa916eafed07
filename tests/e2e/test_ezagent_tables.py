"""The plan of the specification of messaging (ezagent 11), row by row, between processes over real Zenoh.

Rows about Rust's bindings are shown with pycrdt and with the engine inside this process, rows about HTTP with the
control API. The other rows of P2 are in ``test_extensions_between_processes.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from pycrdt import Array, Doc, Map

from sublet.daemon.rooms.relay_keeper import RelayKeeper
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.bus import Bus
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.schema.datatypes import QOS_DATA
from sublet.messaging.service import MessagingService
from sublet.protocol.ezagent.envelope import seal, unpack
from sublet.protocol.ezagent.ids import client_id, own_ref_id
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ids import node_id
from support.consents import TakesAll
from support.cut_proxy import cut_proxy
from support.daemons import Daemon, wait_for
from support.ports import free_port
from support.probe_extension import PROBE
from support.ref_signatures import verify_ref
from support.relay_hub import LocalDesk, RunningHub, running_hub
from support.room_processes import RoomProcess, room_process
from support.rooms import daemon_key, entity_key, local_entity

SECONDS = 40
PARTED_SECONDS = float(os.environ.get("SUBLET_PARTED_SECONDS", "0"))
"""How long peers stay parted beyond what they do meanwhile; 60 is the long form of row P1-6."""


@dataclass
class People:
    """Two peers with the extensions, of whom Alice has one of a third party too; one without; a room of the three."""

    alice: RoomProcess
    bob: RoomProcess
    plain: RoomProcess
    room: str
    ports: list[int]

    def say(self, body: str, **ext: object) -> str:
        """Send as Alice; return the ref once the others have it."""
        ref: str = self.alice.ask("message.send", room_id=self.room, body=body, ext=ext)["ref_id"]
        for other in (self.bob, self.plain):
            other.until("message.new", ref_id=ref)
        return ref

    def ref(self, peer: RoomProcess, ref: str) -> Any:
        """Return a ref as a peer sees it."""
        return peer.ask("timeline.get_ref", room_id=self.room, ref_id=ref)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    directory, ports = tmp_path_factory.mktemp("rooms"), [free_port() for _ in range(3)]
    with ExitStack() as stack:
        alice = stack.enter_context(room_process("alice", directory, ports[0], extensions=True, probe=True))
        bob = stack.enter_context(room_process("bob", directory, ports[1], ports[0], extensions=True))
        plain = stack.enter_context(room_process("plain", directory, ports[2], ports[0]))
        enabled = [one.id for one in (*EXTENSIONS, PROBE)]
        room = alice.ask("room.create", name="Work", extensions=enabled)["room_id"]
        for other in (bob, plain):
            alice.ask("room.invite", room_id=room, entity=other.id)
            other.until("room.member.joined", entity=other.id)
        yield People(alice, bob, plain, room, ports)


@dataclass
class Here:
    """The engine inside this process, as one more peer."""

    id: str
    service: MessagingService
    network: ZenohNetwork
    bus: Bus

    async def until(self, kind: str, **data: object) -> dict[str, Any]:
        """Return the first event of a kind with such data."""
        async for event in self.bus.events.stream(since=0):
            if event["kind"] == kind and all(event.get(name) == value for name, value in data.items()):
                return event
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def here(name: str, directory: Path, endpoints: Endpoints, *more: Any) -> AsyncIterator[Here]:
    entity = local_entity(name, int.from_bytes(os.urandom(3), "big"))
    network = await anyio.to_thread.run_sync(ZenohNetwork, endpoints)
    service = MessagingService(
        directory / f"{name}.db",
        Registry((*BUILT_INS, *EXTENSIONS, *more)),
        network,
        [entity],
        lambda: time.time_ns() // 1_000_000,
        lambda _: True,
        consent=TakesAll(),
    )
    async with service.running():
        with anyio.fail_after(SECONDS):
            yield Here(entity.record.entity_id, service, network, service.bus(entity.record.entity_id))


def listed(peer: RoomProcess, room: str) -> list[str]:
    """Return the ids of a room's messages, all of them."""
    found: list[str] = []
    before = None
    while True:
        page = peer.ask("timeline.list", room_id=room, limit=200, before=before)
        found = [ref["ref_id"] for ref in page["refs"]] + found
        before = page["next_cursor"]
        if before is None:
            return found


# P0-A: CRDT and Zenoh


def test_p0_a_1_an_insert_into_a_map_is_the_same_for_both(people: People) -> None:
    ref = people.say("P0-A-1")
    people.alice.ask("reactions.add", room_id=people.room, ref_id=ref, emoji="👍")
    people.bob.until("reaction.added", ref_id=ref, by=people.alice.id)
    assert people.ref(people.alice, ref)["reactions"] == people.ref(people.bob, ref)["reactions"]
    assert people.ref(people.bob, ref)["reactions"]["👍"]["users"] == [people.alice.id]


def test_p0_a_2_what_two_write_at_once_becomes_one(people: People) -> None:
    ref = people.say("P0-A-2")
    for peer in (people.alice, people.bob):  # different keys of one map
        peer.tell("reactions.add", room_id=people.room, ref_id=ref, emoji="🎉")
    for peer in (people.alice, people.bob):
        assert "error" not in peer.line()
    people.alice.until("reaction.added", ref_id=ref, by=people.bob.id)
    people.bob.until("reaction.added", ref_id=ref, by=people.alice.id)
    both = sorted((people.alice.id, people.bob.id))
    for peer in (people.alice, people.bob):
        assert sorted(people.ref(peer, ref)["reactions"]["🎉"]["users"]) == both


def test_p0_a_3_who_was_away_gets_what_was_written_by_asking(people: People, tmp_path: Path) -> None:
    with room_process("away", tmp_path, free_port(), people.ports[0]) as away:
        people.alice.ask("room.invite", room_id=people.room, entity=away.id)
        away.until("room.member.joined", entity=away.id)
        away.end()
    refs = [people.say(f"P0-A-3 {number}") for number in range(5)]
    with room_process("away", tmp_path, free_port(), people.ports[0]) as away:
        away.ask("sync", room_id=people.room)
        assert listed(away, people.room) == listed(people.alice, people.room)
        assert listed(away, people.room)[-5:] == refs


def test_p0_a_4_a_new_peer_asks_for_all_that_is_kept(tmp_path: Path) -> None:
    port = free_port()
    with room_process("keeper", tmp_path, port) as keeper:
        room = keeper.ask("room.create", name="Kept")["room_id"]
        refs = [keeper.ask("message.send", room_id=room, body=f"kept {number}")["ref_id"] for number in range(40)]
        keeper.process.kill()
        keeper.process.wait()
    with room_process("keeper", tmp_path, port) as keeper, room_process("late", tmp_path, free_port(), port) as late:
        keeper.ask("room.invite", room_id=room, entity=late.id)
        late.until("room.member.joined", entity=late.id)
        late.ask("sync", room_id=room)
        assert listed(late, room) == refs


# P0-B: embedded in Python


def test_p0_b_1_pycrdt_reads_what_peers_write(tmp_path: Path) -> None:
    with room_process("writer", tmp_path, free_port()) as writer:
        room = writer.ask("room.create", name="Read by another library")["room_id"]
        refs = [writer.ask("message.send", room_id=room, body=f"{number}")["ref_id"] for number in range(3)]
        writer.end()
    document: Doc[Any] = Doc()
    config: Map[Any] = document.get("config", type=Map)
    config["name"] = "set here"
    assert config["name"] == "set here"

    shown: Doc[Any] = Doc()
    timeline: Array[Any] = shown.get("timeline", type=Array)
    store = SqliteStore(tmp_path / "writer.db")
    for row in store.documents(room, "index"):
        for raw in store.log_after(row.number, {}, 1 << 20)[0]:
            shown.apply_update(unpack(raw).payload)
    store.close()
    assert [ref["ref_id"] for ref in timeline] == refs


@pytest.mark.anyio
async def test_p0_b_2_a_session_is_opened_inside_an_event_loop(people: People, tmp_path: Path) -> None:
    async with here("loop", tmp_path, Endpoints((), (f"tcp/127.0.0.1:{people.ports[0]}",))) as peer:
        while not peer.network.peers():
            await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_p0_b_3_what_comes_from_other_threads_goes_on_in_coroutines(people: People, tmp_path: Path) -> None:
    async with here("bridge", tmp_path, Endpoints((), (f"tcp/127.0.0.1:{people.ports[0]}",))) as peer:
        await peer.service.find_room(people.room)
        people.alice.ask("room.invite", room_id=people.room, entity=peer.id)
        await peer.until("room.member.joined", entity=peer.id)
        heard: list[str] = []

        async def listen() -> None:
            async for event in peer.bus.events.stream(since=0, room_id=people.room):
                heard.append(event["kind"])
                if event["kind"] == "message.new" and event.get("ref_id") == last:
                    return

        last = people.say("P0-B-3")
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            for number in range(20):  # calls from coroutines, while Zenoh's threads call back
                group.start_soon(_send, peer, people.room, f"at once {number}")
        assert "message.new" in heard


async def _send(peer: Here, room: str, body: str) -> None:
    await peer.bus.message.send(room_id=room, body=body)


def test_p0_b_4_two_processes_of_python_become_the_same(people: People) -> None:
    for peer in (people.alice, people.bob):
        peer.tell("flood", room_id=people.room, count=40, workers=4, quiet=True)
    for peer in (people.alice, people.bob):
        assert peer.line() == {"sent": 40}
    for peer in (people.alice, people.bob):
        peer.ask("sync", room_id=people.room)
    hers = listed(people.alice, people.room)
    assert len(hers) >= 80
    assert listed(people.bob, people.room) == hers


# P1: the engine


def test_p1_1_declarations_are_loaded_in_the_order_of_their_dependencies(people: People) -> None:
    program = (
        "from sublet.messaging.builtins import BUILT_INS\n"
        "from sublet.messaging.declaring.registry import Registry\n"
        "print(*[one.id for one in Registry(reversed(BUILT_INS)).declarations])\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert printed.index("identity") < printed.index("room") < printed.index("timeline")


def test_p1_2_hooks_run_by_their_priority_and_signing_is_last(people: People) -> None:
    ref = people.say("P1-2", probe=[])
    seen = people.ref(people.bob, ref)
    assert seen["ext.probe"] == ["first", "second"]
    assert seen["ext.command"] == "by a hook"
    verify_ref(people.room, seen, (entity_key("alice").verify_key,))


def test_p1_3_a_hook_after_a_write_may_not_change_what_was_written(people: People) -> None:
    ref = people.say("P1-3")
    people.alice.ask("message.delete", room_id=people.room, ref_id=ref)
    people.alice.until("probe.violation", ref_id=ref, error="probe.undo changes what it was called for")
    people.bob.until("message.deleted", ref_id=ref)
    for peer in (people.alice, people.bob):
        assert people.ref(peer, ref)["status"] == "deleted_by_author"


def test_p1_4_an_annotation_is_written_read_and_kept(people: People, tmp_path: Path) -> None:
    port = free_port()
    with room_process("keeper", tmp_path, port, extensions=True) as keeper:
        room = keeper.ask("room.create", name="Annotated")["room_id"]
        ref = keeper.ask("message.send", room_id=room, body="annotate me")["ref_id"]
        key = f"seen:{keeper.id}"
        keeper.ask("annotation.add", room_id=room, ref_id=ref, name="reactions", key=key, value=1)
        before = keeper.ask("annotation.list", room_id=room, ref_id=ref)["ext.reactions"]
        keeper.process.kill()
        keeper.process.wait()
    with room_process("keeper", tmp_path, port, extensions=True) as keeper:
        assert keeper.ask("annotation.list", room_id=room, ref_id=ref)["ext.reactions"] == before
        assert set(before) == {key}


def _forged(people: People, *, key: str, signer: str, author: str) -> bytes:
    """Return an envelope with a ref, signed with somebody's key in somebody's name."""
    now = time.time_ns() // 1_000_000
    people_of = {people.bob.id: "bob", people.plain.id: "plain"}
    assert people_of[signer]
    transaction = Transaction(client_id(signer, 77), 0)
    ref = {
        "ref_id": own_ref_id(now, people.room, author, 1),
        "author": author,
        "content_type": "immutable",
        "content_id": "sha256:" + "0" * 64,
        "created_at": "2026-11-28T10:00:00.000Z",
        "status": "active",
        "signature": "",
    }
    transaction.append_maps("timeline", None, [ref])
    return seal(entity_key(key), signer, _shard(people, now), now, transaction.encode()).raw


def _shard(people: People, now: int) -> str:
    return doc_id("index", room_id=people.room, shard_id=time.strftime("%Y-%m", time.gmtime(now / 1000)))


def _refused(people: People, raw: bytes, reason: str) -> None:
    """Publish something, and wait until Alice has refused it for a reason."""
    before = people.alice.ask("counts").get(reason, 0)
    shown = listed(people.alice, people.room)
    network = ZenohNetwork(Endpoints((), (f"tcp/127.0.0.1:{people.ports[0]}",)))
    try:
        wait_for(network.peers, SECONDS, "a link")
        key = channel_key(unpack(raw).doc_id, Channel.UPDATES)

        def refused() -> bool:
            network.publish(key, raw, b"", QOS_DATA)
            return bool(people.alice.ask("counts").get(reason, 0) > before)

        wait_for(refused, SECONDS, f"the refusal as {reason}")
    finally:
        network.close()
    assert listed(people.alice, people.room) == shown
    people.say("and what is signed goes on")


def test_p1_5_what_is_not_signed_by_its_signer_is_dropped(people: People) -> None:
    forged = _forged(people, key="mallory", signer=people.bob.id, author=people.bob.id)
    _refused(people, forged, "bad_signature")


@pytest.mark.anyio
async def test_p1_6_after_a_parting_differences_bring_everything(tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        alice = stack.enter_context(room_process("alice", tmp_path, port))
        async with cut_proxy(f"http://127.0.0.1:{port}") as proxy:
            bob = await anyio.to_thread.run_sync(lambda: RoomProcess("bob", tmp_path, free_port(), proxy.port))
            stack.callback(bob.process.kill)
            room = alice.ask("room.create", name="Parted")["room_id"]
            alice.ask("room.invite", room_id=room, entity=bob.id)
            await anyio.to_thread.run_sync(lambda: bob.until("room.member.joined", entity=bob.id))
            proxy.refusing = True
            proxy.cut()
            for number in range(20):
                for peer in (alice, bob):
                    await anyio.to_thread.run_sync(partial(peer.ask, "message.send", room_id=room, body=f"{number}"))
            await anyio.sleep(PARTED_SECONDS)
            assert (len(listed(alice, room)), len(listed(bob, room))) == (20, 20)
            proxy.refusing = False
            with anyio.fail_after(SECONDS):
                while not (len(listed(alice, room)) == len(listed(bob, room)) == 40):
                    await anyio.sleep(0.1)
            assert listed(alice, room) == listed(bob, room)
            await anyio.to_thread.run_sync(bob.end)
            assert bob.process.stdout is not None
            bob.process.stdout.close()


# P2: built-ins and extensions


def test_p2_5_a_redaction_is_laid_over_the_message(people: People) -> None:
    ref = people.say("P2-5 to be redacted")
    people.alice.ask("moderation.redact", room_id=people.room, ref_id=ref, reason="off topic")
    people.bob.until("moderation.action", target_ref=ref)
    seen = people.ref(people.bob, ref)
    assert seen["redacted"]
    assert "P2-5" not in json.dumps(seen)
    assert people.ref(people.plain, ref)["body"] == "P2-5 to be redacted", "the message itself is as it was"


def test_p2_9_nobody_writes_in_the_name_of_another(people: People) -> None:
    forged = _forged(people, key="plain", signer=people.plain.id, author=people.bob.id)
    _refused(people, forged, "foreign_author")


# P2.5: the Python API


def test_p2_point_5_1_what_was_installed_is_imported(tmp_path: Path) -> None:
    program = "import importlib.metadata, sublet.messaging.bus; print(importlib.metadata.version('sublet'))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip()


@asynccontextmanager
async def kept_at(running: RunningHub, peer: Here, name: str, other: str, directory: Path) -> AsyncIterator[None]:
    """Keep an engine at a relay meanwhile, under a name, as a daemon that is paired with another one."""
    contacts = [node_id(bytes(daemon_key(other).verify_key))]
    endpoint, authority = f"tls/127.0.0.1:{running.port}", running.directory / "authority.pem"
    ask = partial(_desk, running)
    keeper = RelayKeeper(daemon_key(name), directory / f"at-{name}", endpoint, authority, lambda: contacts, ask)
    assert (await keeper.register(name)).entity_id == f"@{name}:relay.test"
    async with anyio.create_task_group() as group:
        group.start_soon(keeper.run, peer.network, peer.service)
        yield
        group.cancel_scope.cancel()


def _desk(running: RunningHub, url: str, authority: Path | None) -> LocalDesk:
    return LocalDesk(running.registry)


@pytest.mark.anyio
async def test_p2_point_5_2_to_4_rooms_messages_and_events_over_a_relay(tmp_path: Path) -> None:
    with running_hub(tmp_path / "relay") as running:
        async with (
            here("near", tmp_path, Endpoints()) as near,
            here("far", tmp_path, Endpoints()) as far,
            kept_at(running, near, "near", "far", tmp_path),
            kept_at(running, far, "far", "near", tmp_path),
        ):
            room = (await near.bus.room.create(name="Over a relay"))["room_id"]
            await near.bus.room.invite(room_id=room, entity=far.id)
            await far.until("room.member.joined", entity=far.id)
            ref = (await near.bus.message.send(room_id=room, body="there"))["ref_id"]
            await far.until("message.new", ref_id=ref)
            await far.bus.message.send(room_id=room, body="and back")
            event = await near.until("message.new", author=far.id)
            page = await near.bus.timeline.list(room_id=room)
            assert [one["body"] for one in page["refs"]] == ["there", "and back"]
            assert page["refs"][-1]["ref_id"] == event["ref_id"]


@pytest.mark.anyio
async def test_p2_point_5_5_and_6_extensions_and_hooks_in_python(people: People, tmp_path: Path) -> None:
    reached = tuple(f"tcp/127.0.0.1:{port}" for port in people.ports)  # a peer carries nothing between two others
    async with here("python", tmp_path, Endpoints((), reached), PROBE) as peer:
        await peer.service.find_room(people.room)
        people.alice.ask("room.invite", room_id=people.room, entity=peer.id)
        await peer.until("room.member.joined", entity=peer.id)
        sent = await peer.bus.message.send(room_id=people.room, body="from Python", ext={"probe": []})
        where = {"room_id": people.room, "ref_id": sent["ref_id"]}
        await peer.bus.reactions.add(**where, emoji="🚀")
        await peer.bus.mutable.update(**where, body="from Python, edited")
        await peer.bus.watch.set(**where, reason="a reply is awaited")
        await anyio.to_thread.run_sync(lambda: people.bob.until("message.edited", ref_id=sent["ref_id"]))
        seen = await anyio.to_thread.run_sync(lambda: people.ref(people.bob, sent["ref_id"]))
        assert (seen["status"], seen["body"]) == ("edited", "from Python, edited")
        assert seen["reactions"]["🚀"]["users"] == [peer.id]
        assert seen["ext.probe"] == ["first", "second"], "hooks in Python have run"
        assert peer.id in json.dumps(seen["ext.watch"])


# P3: the command line and the control API


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("d"))
    try:
        yield one.up()
    finally:
        one.down()


def test_p3_1_the_command_line_makes_rooms_and_sends(daemon: Daemon) -> None:
    room = daemon.run("room", "create", "Work").stdout.strip()
    assert [(one["room_id"], one["name"]) for one in daemon.json("room", "list")] == [(room, "Work")]
    assert daemon.json("send", room, "from the command line")["ref_id"]
    assert "from the command line" in daemon.run("read", room).stdout
    assert "Work" in daemon.run("room", "list").stdout


def test_p3_2_the_control_api_answers(daemon: Daemon) -> None:
    socket = next(daemon.home.rglob("control.sock"))
    transport = httpx.HTTPTransport(uds=str(socket))
    with httpx.Client(transport=transport, base_url="http://sublet", timeout=SECONDS) as client:
        made = client.post("/v1/rooms", json={"name": "Over HTTP"})
        assert made.status_code == 201
        room = made.json()["room_id"]
        sent = client.post(f"/v1/rooms/{room}/messages", json={"body": "over HTTP"})
        assert sent.status_code == 201
        read = client.get(f"/v1/rooms/{room}/messages").json()
        assert "over HTTP" in json.dumps(read)
        assert room in json.dumps(client.get("/v1/rooms").json())
        assert client.get("/v1/rooms/no-such-room").status_code >= 400
