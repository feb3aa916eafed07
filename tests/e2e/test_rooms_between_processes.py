"""Rooms between real processes over real Zenoh: the thinnest path, a late joiner, and a kill under load."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A peer in a process, spoken to in lines."""

    def __init__(self, name: str, directory: Path, port: int, *connect: int) -> None:
        endpoints = [f"tcp/127.0.0.1:{number}" for number in (port, *connect)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.room_peer", name, str(directory), *endpoints],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
        )
        self.id: str = self.line()["entity_id"]

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def tell(self, do: str, **arguments: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def ask(self, do: str, **arguments: object) -> Any:
        self.tell(do, **arguments)
        answer = self.line()
        assert "error" not in answer, answer
        return answer.get("result", answer)

    def until(self, kind: str, since: int = 0, **data: object) -> int:
        """Wait for an event; return the cursor after it."""
        while True:
            answer = self.ask("watch", since=since, wait_seconds=20.0)
            since = answer["cursor"]
            for event in answer["events"]:
                if event["kind"] == kind and all(event[name] == value for name, value in data.items()):
                    return since

    def bodies(self, room: str) -> list[str]:
        return [ref["body"] for ref in self.ask("timeline.list", room_id=room, limit=200)["refs"]]

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=20) == 0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@contextmanager
def peer(name: str, directory: Path, port: int, *connect: int) -> Iterator[Process]:
    process = Process(name, directory, port, *connect)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()
        for stream in (process.process.stdin, process.process.stdout):
            if stream is not None:
                stream.close()


def test_a_room_between_two_processes_and_a_late_third(tmp_path: Path, stack: ExitStack) -> None:
    first, second, third = free_port(), free_port(), free_port()
    alice = stack.enter_context(peer("alice", tmp_path, first))
    bob = stack.enter_context(peer("bob", tmp_path, second, first))
    room = alice.ask("room.create", name="Work")["room_id"]
    alice.ask("room.invite", room_id=room, entity=bob.id)
    bob.until("room.member.joined", entity=bob.id)
    alice.ask("message.send", room_id=room, body="hello Bob")
    cursor = bob.until("message.new", author=alice.id)
    bob.ask("message.send", room_id=room, body="hello Alice")
    alice.until("message.new", author=bob.id)
    assert alice.bodies(room) == bob.bodies(room) == ["hello Bob", "hello Alice"]

    carol = stack.enter_context(peer("carol", tmp_path, third, first))
    alice.ask("room.invite", room_id=room, entity=carol.id)
    carol.until("message.new", author=bob.id)
    assert carol.bodies(room) == ["hello Bob", "hello Alice"]
    assert cursor > 0
    for process in (alice, bob, carol):
        process.end()


def test_nothing_acknowledged_is_lost_when_the_sender_is_killed(tmp_path: Path, stack: ExitStack) -> None:
    port, other = free_port(), free_port()
    alice = stack.enter_context(peer("alice", tmp_path, port))
    room = alice.ask("room.create", name="Work")["room_id"]
    alice.tell("flood", room_id=room, count=100_000, workers=8)
    acknowledged = {alice.line()["acknowledged"] for _ in range(300)}
    alice.process.send_signal(signal.SIGKILL)
    assert alice.process.stdout is not None
    for line in alice.process.stdout.read().splitlines(keepends=True):
        if line.endswith("\n"):
            acknowledged.add(json.loads(line)["acknowledged"])
    alice.process.wait()

    again = stack.enter_context(peer("alice", tmp_path, port))
    bob = stack.enter_context(peer("bob", tmp_path, other, port))
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
