"""Rounds of ``kill -9`` under load: peers in processes of their own, of which one is killed at any moment."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from support.ports import free_port
from support.room_processes import RoomProcess, room_process

WORKERS = 8
MAX_MESSAGES = 100_000
"""Of one flood whose sender is killed before its end."""
SETTLE_SECONDS = 120.0
ALICE, BOB, BOB_THEN_ALICE = ("alice",), ("bob",), ("bob", "alice")


@dataclass
class Rounds:
    """What came of some rounds."""

    rounds: int = 0
    killed: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """How often who was killed, in this order."""
    acknowledged: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    differ: int = 0
    """Replicas that do not show what the first one shows."""
    twice: int = 0
    recovered: list[float] = field(default_factory=list)
    """Seconds from the start of who was killed until it answered."""


class Scene:
    """Alice, who sends, and Bob, who hears; either may be killed, and comes back over its own database.

    Args:
        directory: of both databases.
        seed: decides who is killed, and when.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._random = random.Random(seed)
        self._ports = {"alice": free_port(), "bob": free_port()}
        self._stacks = {name: ExitStack() for name in self._ports}
        self._peers: dict[str, RoomProcess] = {}
        self.room = ""
        self.found = Rounds()

    def __enter__(self) -> Scene:
        for name in self._ports:
            self._start(name)
        self.room = self._peers["alice"].ask("room.create", name="Work")["room_id"]
        self._peers["alice"].ask("room.invite", room_id=self.room, entity=self._peers["bob"].id)
        self._peers["bob"].until("room.member.joined", entity=self._peers["bob"].id)
        return self

    def __exit__(self, *_: object) -> None:
        for stack in self._stacks.values():
            stack.close()

    def _start(self, name: str) -> None:
        other = next(one for one in self._ports if one != name)
        self._stacks[name] = ExitStack()
        began = time.monotonic()
        connect = (self._ports[other],) if name == "bob" else ()
        process = room_process(name, self._directory, self._ports[name], *connect)
        self._peers[name] = self._stacks[name].enter_context(process)
        if self.room:
            self.found.recovered.append(time.monotonic() - began)

    def round(self, *victims: str) -> None:
        """Let Alice flood, kill one of the two or Bob and then her at some moment, and start again who was killed.

        Args:
            victims: who is killed, in this order; by default what the seed decides.
        """
        victims = victims or self._random.choice([ALICE, BOB, BOB_THEN_ALICE])
        alice = self._peers["alice"]
        # What nobody ends has to end by itself, sometimes before Bob is there again and sometimes after.
        count = MAX_MESSAGES if "alice" in victims else WORKERS * self._random.randint(100, 400)
        alice.tell("flood", room_id=self.room, count=count, workers=WORKERS)
        acknowledged = self._acknowledged(self._random.randint(1, 400))
        time.sleep(self._random.random() * 0.02)
        for victim in victims:
            self._peers[victim].process.send_signal(signal.SIGKILL)
            if victim == "bob":  # she goes on meanwhile
                acknowledged |= self._acknowledged(self._random.randint(1, 200))
        with ThreadPoolExecutor(1) as starting:
            back = starting.submit(self._again, "bob") if "bob" in victims else None
            assert alice.process.stdout is not None
            for line in alice.process.stdout:
                if "sent" in line or not line.endswith("\n"):
                    break
                acknowledged.add(json.loads(line)["acknowledged"])
            if back is not None:
                back.result()
        if "alice" in victims:
            self._again("alice")
        self.found.acknowledged |= acknowledged
        self.found.rounds += 1
        self.found.killed[victims] += 1

    def _acknowledged(self, count: int) -> set[str]:
        return {self._peers["alice"].line()["acknowledged"] for _ in range(count)}

    def _again(self, name: str) -> None:
        self._peers[name].process.wait()
        self._stacks[name].close()
        self._start(name)

    def settle(self) -> Rounds:
        """Wait until both show the same, and return what came of the rounds."""
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            shown = {name: self._refs(name) for name in self._peers}
            if shown["alice"] == shown["bob"] or time.monotonic() > until:
                break
            time.sleep(0.2)
        self.found.differ = int(shown["alice"] != shown["bob"])
        for refs in shown.values():
            self.found.lost |= self.found.acknowledged - set(refs)
            self.found.twice += len(refs) - len(set(refs))
        return self.found

    def _refs(self, name: str) -> list[str]:
        """Return the ids of all messages that a peer shows, in order."""
        return [ref["ref_id"] for ref in self._peers[name].shown(self.room)]
