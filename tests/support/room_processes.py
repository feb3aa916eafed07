"""Peers in processes of their own (``room_peer``), spoken to in lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
SAME_SECONDS = 90.0


class RoomProcess:
    """A peer in a process, spoken to in lines."""

    def __init__(
        self,
        name: str,
        directory: Path,
        port: int,
        *connect: int,
        extensions: bool = False,
        probe: bool = False,
        astray: bool = False,
        pinned: bool = False,
    ) -> None:
        endpoints = [f"tcp/127.0.0.1:{number}" for number in (port, *connect)]
        options = ["--extensions"] if extensions else []
        options += ["--probe"] if probe else []
        options += ["--astray"] if astray else []
        options += ["--pinned"] if pinned else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.room_peer", *options, name, str(directory), *endpoints],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
        )
        self.id: str = self.line()["entity_id"]

    def line(self) -> dict[str, Any]:
        """Return its next answer."""
        assert self.process.stdout is not None
        while not (said := self.process.stdout.readline()).startswith("{"):
            assert said, "it has ended"  # what else is there was logged
        answer: dict[str, Any] = json.loads(said)
        return answer

    def tell(self, do: str, **arguments: object) -> None:
        """Give a command, without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def ask(self, do: str, **arguments: object) -> Any:
        """Give a command and return its answer."""
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
        """Return the bodies of a room's last messages."""
        return [ref["body"] for ref in self.ask("timeline.list", room_id=room, limit=200)["refs"]]

    def shown(self, room: str) -> list[Any]:
        """Return all that a room shows, in order."""
        found: list[Any] = []
        before: str | None = None
        while True:
            page = self.ask("timeline.list", room_id=room, limit=200, before=before)
            found = page["refs"] + found
            before = page["next_cursor"]
            if before is None:
                return found

    def end(self) -> None:
        """Let it end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=20) == 0


def until_same(room: str, count: int, *peers: RoomProcess) -> None:
    """Wait until all show the same messages, so many of them, without anybody being told to ask for them."""
    deadline = time.monotonic() + SAME_SECONDS
    while time.monotonic() < deadline:
        seen = [peer.shown(room) for peer in peers]
        if len(seen[0]) == count and all(one == seen[0] for one in seen):
            return
        time.sleep(0.2)
    raise AssertionError([len(one) for one in seen])


@contextmanager
def room_process(
    name: str,
    directory: Path,
    port: int,
    *connect: int,
    extensions: bool = False,
    probe: bool = False,
    astray: bool = False,
    pinned: bool = False,
) -> Iterator[RoomProcess]:
    """Start a peer, and kill it if it still runs.

    Args:
        name: its entity.
        directory: of its database.
        port: where it listens.
        connect: whom it calls.
        extensions: with the extensions of the specification.
        probe: with the one of a third party.
        astray: what it publishes goes to a ``support.muddler`` alone.
        pinned: over links of TLS, as daemons have them.
    """
    process = RoomProcess(
        name, directory, port, *connect, extensions=extensions, probe=probe, astray=astray, pinned=pinned
    )
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()
        for stream in (process.process.stdin, process.process.stdout):
            if stream is not None:
                stream.close()
