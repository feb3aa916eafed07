"""A daemon's messaging on real links in a process of its own, or a paired daemon that means harm in its place.

``python benchmarks/_bus_process.py ROLE NAME DIRECTORY``: says on which port it listens, is told in a line which others
there are, and takes the commands of ``support.room_peer`` from then on. Roles: ``member``; ``silent`` takes questions
and answers none; ``junk`` answers with bytes that say nothing; ``mute`` is a member that says what it has and then
answers nothing when it is compared with.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
# Modules here have names that packages of the tests have, too, such as ``messaging``.
sys.path.remove(str(Path(__file__).resolve().parent))

from attacks.kit.bus_members import OnBus, Villain
from attacks.kit.neighbour import public
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.ports.network import PeerQuery
from sublet.messaging.service import MessagingService
from sublet.protocol import ids
from support.consents import TakesAll
from support.room_peer import _answer, _do
from support.rooms import daemon_key

KEYS = ("config/state", "root", "index/*/state", "delivery", "ext/*/state", "content/*", "content/*/state", "tree/*")


@dataclass(frozen=True)
class Other:
    """Another process: what links need to know of it."""

    name: str
    port: int

    @property
    def key(self) -> bytes:
        return public(Ed25519PrivateKey.from_private_bytes(bytes(daemon_key(self.name))))

    @property
    def node(self) -> str:
        return ids.node_id(self.key)


def mute(one: OnBus) -> None:
    """Let questions of whoever compares rooms be held and never answered."""
    held: list[PeerQuery] = []
    serve = one.network.serve

    def serving(key: str, answer: Any) -> Any:
        def holding(query: PeerQuery) -> None:
            if "/tree/" in query.key:
                held.append(query)
            else:
                answer(query)

        return serve(key, holding)

    one.network.serve = serving  # type: ignore[method-assign,assignment]


async def main(role: str, name: str, directory: Path) -> None:
    """Serve commands until stdin ends."""
    place = directory / f"links of {name}"
    place.mkdir(exist_ok=True)
    one = (Villain if role in ("silent", "junk") else OnBus)(name, place, time.time_ns() % 2**40)
    _answer({"port": one.port})
    told = json.loads(await anyio.to_thread.run_sync(sys.stdin.readline))
    others = [Other(known, port) for known, port in told["others"].items()]
    if role == "mute":
        mute(one)
    await anyio.to_thread.run_sync(one.pair, cast("list[OnBus]", others))
    if isinstance(one, Villain):
        keys = [f"ezagent/{told['room']}/{key}" for key in KEYS]
        (one.is_silent if role == "silent" else one.talks_junk)(*keys)
        _answer({"entity_id": one.id})
        await anyio.to_thread.run_sync(sys.stdin.readline)
        return
    service = MessagingService(
        directory / f"{name}.db",
        Registry((*BUILT_INS, *EXTENSIONS)),
        one.network,
        [one.entity],
        lambda: time.time_ns() // 1_000_000,
        lambda _: True,
        consent=TakesAll(),
    )
    async with service.running():
        _answer({"entity_id": one.id})
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            _answer(await _do(service, one.id, json.loads(line)))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], Path(sys.argv[3]))
