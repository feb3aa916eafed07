"""C38 and C39 with separate processes: who was away catches up whatever happened, and nothing hangs at its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from support.cut_proxy import CutProxy, cut_proxy
from support.daemons import Daemon, pair
from support.message_kills import Scene
from support.room_processes import RoomProcess, free_port, room_process

pytestmark = pytest.mark.timeout(240)

END_SECONDS = 30.0
"""After which a daemon that was told to end hangs: it takes 5 s at most, on a machine that has the time."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@contextmanager
def cable(port: int) -> Iterator[tuple[int, CutProxy]]:
    """A line to a peer's port that can be cut; yields the port to call in its place."""
    loop, made, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[CutProxy] = []

    async def run() -> None:
        async with cut_proxy(f"http://127.0.0.1:{port}") as proxy:
            found.append(proxy)
            made.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    made.wait()
    try:
        yield int(found[0].url.rstrip("/").rpartition(":")[2]), found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


def shown(peer: RoomProcess, room: str) -> list[tuple[str, str, str]]:
    """Return what a room shows: who said what under which id, in order."""
    found: list[tuple[str, str, str]] = []
    before: str | None = None
    while True:
        page = peer.ask("timeline.list", room_id=room, limit=200, before=before)
        found = [(ref["ref_id"], ref["author"], ref["body"]) for ref in page["refs"]] + found
        before = page["next_cursor"]
        if before is None:
            return found


def until_same(room: str, count: int, *peers: RoomProcess) -> None:
    """Wait until all show the same messages, so many of them, without anybody being told to ask for them."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        seen = [shown(peer, room) for peer in peers]
        if len(seen[0]) == count and all(one == seen[0] for one in seen):
            return
        time.sleep(0.2)
    raise AssertionError([len(one) for one in seen])


def test_c38_a_late_joiner_gets_what_came_before_and_both_sides_of_a_cut_what_the_other_wrote(
    tmp_path: Path, stack: ExitStack
) -> None:
    first, second, third = free_port(), free_port(), free_port()
    alice = stack.enter_context(room_process("alice", tmp_path, first))
    line, proxy = stack.enter_context(cable(first))
    bob = stack.enter_context(room_process("bob", tmp_path, second, line))
    room = alice.ask("room.create", name="Work")["room_id"]
    alice.ask("room.invite", room_id=room, entity=bob.id)
    bob.until("room.member.joined", entity=bob.id)
    for number in range(100):
        alice.ask("message.send", room_id=room, body=f"before {number}")

    carol = stack.enter_context(room_process("carol", tmp_path, third, second))
    alice.ask("room.invite", room_id=room, entity=carol.id)
    carol.until("room.member.joined", entity=carol.id)
    until_same(room, 100, alice, bob, carol)

    proxy.refusing = True
    proxy.cut()
    for number in range(20):
        alice.ask("message.send", room_id=room, body=f"alone {number}")
        bob.ask("message.send", room_id=room, body=f"elsewhere {number}")
    assert len(shown(alice, room)) == 120
    proxy.refusing = False
    until_same(room, 140, alice, bob, carol)


def test_c38_nothing_acknowledged_is_lost_by_kills_under_load(tmp_path: Path) -> None:
    with Scene(tmp_path, 7) as scene:
        for _ in range(2):
            scene.round()
        found = scene.settle()
    assert found.acknowledged
    assert (found.lost, found.twice, found.differ) == (set(), 0, 0)


def test_c39_a_daemon_ends_in_time_under_load_and_only_this_machine_reaches_its_bus(tmp_path: Path) -> None:
    alice, bob = Daemon(tmp_path / "a"), Daemon(tmp_path / "b")
    try:
        alice.up()
        bob.up()
        pair(alice, bob)
        room = alice.json("room", "create", "Work")["room_id"]
        alice.json("room", "invite", room, bob.json("whoami")["entity_id"])
        process = psutil.Process(int(alice.info["pid"]))
        listening = {one.laddr.ip for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}
        assert not [one for one in process.net_connections("udp") if one.laddr.port == 7446], "nobody is searched for"
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                alice.run("send", room, "more", check=None)

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            alice.json("send", room, "one more")
            process.terminate()
            process.wait(timeout=END_SECONDS)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    finally:
        for daemon in (alice, bob):
            daemon.down()
