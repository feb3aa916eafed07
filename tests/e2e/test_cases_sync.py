"""C38 and C39 with separate processes: who was away catches up whatever happened, and nothing hangs at its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from support.cut_proxy import cable
from support.daemons import Daemon, pair
from support.message_kills import ALICE, BOB, BOB_THEN_ALICE, Scene
from support.ports import free_port
from support.room_processes import room_process, until_same

pytestmark = pytest.mark.timeout(240)

BEGUN, ANSWERS = 10, 50
END_SECONDS = 30.0
"""After which a daemon that was told to end hangs: it takes 5 s at most, on a machine that has the time."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def test_c38_a_late_joiner_gets_what_came_before_and_both_sides_of_a_cut_what_the_other_wrote(
    tmp_path: Path, stack: ExitStack
) -> None:
    first, second, third = free_port(), free_port(), free_port()
    alice = stack.enter_context(room_process("alice", tmp_path, first))
    line = stack.enter_context(cable(first))
    bob = stack.enter_context(room_process("bob", tmp_path, second, line.port))
    room = alice.ask("room.create", name="Work")["room_id"]
    alice.ask("room.invite", room_id=room, entity=bob.id)
    bob.until("room.member.joined", entity=bob.id)
    for number in range(100):
        alice.ask("message.send", room_id=room, body=f"before {number}")

    carol = stack.enter_context(room_process("carol", tmp_path, third, second))
    alice.ask("room.invite", room_id=room, entity=carol.id)
    carol.until("room.member.joined", entity=carol.id)
    until_same(room, 100, alice, bob, carol)

    with line.out():
        for number in range(20):
            alice.ask("message.send", room_id=room, body=f"alone {number}")
            bob.ask("message.send", room_id=room, body=f"elsewhere {number}")
        assert len(alice.shown(room)) == 120
    until_same(room, 140, alice, bob, carol)


def test_c38_nothing_acknowledged_is_lost_by_kills_of_who_sends_and_of_who_hears(tmp_path: Path) -> None:
    with Scene(tmp_path, 7) as scene:
        for victims in (ALICE, BOB, BOB_THEN_ALICE):
            scene.round(*victims)
        found = scene.settle()
    assert found.acknowledged
    assert (found.lost, found.twice, found.differ) == (set(), 0, 0)


def test_c39_both_publish_from_within_handlers_of_what_the_other_publishes(tmp_path: Path, stack: ExitStack) -> None:
    first = free_port()
    alice = stack.enter_context(room_process("alice", tmp_path, first))
    bob = stack.enter_context(room_process("bob", tmp_path, free_port(), first))
    room = alice.ask("room.create", name="Work", invite=[bob.id])["room_id"]
    bob.until("room.member.joined", entity=bob.id)
    for number in range(BEGUN):
        alice.ask("message.send", room_id=room, body=f"question {number}")
    for peer in (alice, bob):
        peer.tell("answer", room_id=room, count=ANSWERS)
    for peer in (alice, bob):
        assert peer.line() == {"answered": ANSWERS}
    until_same(room, BEGUN + 2 * ANSWERS, alice, bob)


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
