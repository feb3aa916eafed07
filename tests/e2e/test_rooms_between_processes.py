"""Rooms between real processes over real Zenoh: the thinnest path, a late joiner, and a kill under load."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.ports import free_port
from support.room_processes import room_process


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def test_a_room_between_two_processes_and_a_late_third(tmp_path: Path, stack: ExitStack) -> None:
    first, second, third = free_port(), free_port(), free_port()
    alice = stack.enter_context(room_process("alice", tmp_path, first))
    bob = stack.enter_context(room_process("bob", tmp_path, second, first))
    room = alice.ask("room.create", name="Work")["room_id"]
    alice.ask("room.invite", room_id=room, entity=bob.id)
    bob.until("room.member.joined", entity=bob.id)
    alice.ask("message.send", room_id=room, body="hello Bob")
    cursor = bob.until("message.new", author=alice.id)
    bob.ask("message.send", room_id=room, body="hello Alice")
    alice.until("message.new", author=bob.id)
    assert alice.bodies(room) == bob.bodies(room) == ["hello Bob", "hello Alice"]

    carol = stack.enter_context(room_process("carol", tmp_path, third, first))
    alice.ask("room.invite", room_id=room, entity=carol.id)
    carol.until("message.new", author=bob.id)
    assert carol.bodies(room) == ["hello Bob", "hello Alice"]
    assert cursor > 0
    for process in (alice, bob, carol):
        process.end()


def test_nothing_acknowledged_is_lost_when_the_sender_is_killed(tmp_path: Path, stack: ExitStack) -> None:
    port, other = free_port(), free_port()
    alice = stack.enter_context(room_process("alice", tmp_path, port))
    room = alice.ask("room.create", name="Work")["room_id"]
    alice.tell("flood", room_id=room, count=100_000, workers=8)
    acknowledged = {alice.line()["acknowledged"] for _ in range(300)}
    alice.process.send_signal(signal.SIGKILL)
    assert alice.process.stdout is not None
    for line in alice.process.stdout.read().splitlines(keepends=True):
        if line.endswith("\n"):
            acknowledged.add(json.loads(line)["acknowledged"])
    alice.process.wait()

    again = stack.enter_context(room_process("alice", tmp_path, port))
    bob = stack.enter_context(room_process("bob", tmp_path, other, port))
    again.ask("room.invite", room_id=room, entity=bob.id)
    bob.until("room.member.joined", entity=bob.id)
    bob.ask("sync", room_id=room)
    for process in (again, bob):
        found, before = set[str](), None
        while True:
            page = process.ask("timeline.list", room_id=room, limit=200, before=before)
            found |= {ref["ref_id"] for ref in page["refs"]}
            before = page["next_cursor"]
            if before is None:
                break
        assert acknowledged <= found
