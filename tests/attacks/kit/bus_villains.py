"""What daemons that mean harm do beside honest ones, each over real links by an identity key of its own."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attacks.kit.bus_members import OnBus, Villain
from attacks.kit.neighbour import Declarer, public
from attacks.kit.odd_fields import OddMember
from sublet.messaging.ports.network import PeerQuery, Priority, Qos
from sublet.protocol import ids
from sublet.protocol.ezagent.envelope import seal, unpack
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id
from support.rooms import Peer, daemon_key

KEYS: Final = (
    "config/state", "root", "index/*/state", "delivery", "ext/*/state", "content/*", "content/*/state", "tree/*"
)  # fmt: skip
FORGED: Final = 1_024
"""Different forged messages, which are published again and again."""
BURST: Final = 50
BURST_SECONDS: Final = 0.05
DECLARED: Final = 60_000
AT_ONCE: Final = 256
CALL_AGAIN_SECONDS: Final = 0.05


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


def silent(one: Villain, others: Sequence[Other], room: str) -> None:
    """Take questions and answer none."""
    one.is_silent(*(f"ezagent/{room}/{key}" for key in KEYS))


def junk(one: Villain, others: Sequence[Other], room: str) -> None:
    """Answer questions with bytes that say nothing."""
    one.talks_junk(*(f"ezagent/{room}/{key}" for key in KEYS))


def reader(one: Villain, others: Sequence[Other], room: str) -> None:
    """Ask for all that is published; whoever has started this stops it then, and nothing is read any more."""
    one.listens()


def forger(one: Villain, others: Sequence[Other], room: str) -> None:
    """Publish messages that no schema takes, and such in the name of another, without end."""
    peer = Peer(one.name, 5)
    odd, shard = OddMember(peer, room), time.strftime("%Y-%m", time.gmtime())
    name = doc_id("index", room_id=room, shard_id=shard)
    forged = [odd.ref({"created_at": "soon"}, shard, time.time_ns() // 1_000_000).envelope for _ in range(FORGED // 2)]
    whose = next(f"@{other.name}:{other.node}" for other in others)
    forged += [seal(peer.entity.key, whose, name, 1, unpack(raw).payload).raw for raw in forged]
    key, qos = channel_key(name, Channel.UPDATES), Qos(Priority.DATA, droppable=True)

    def run() -> None:
        endless = itertools.cycle(forged)
        while True:
            for raw in itertools.islice(endless, BURST):
                one.network.publish(key, raw, b"", qos)
            time.sleep(BURST_SECONDS)

    _start(run)


def declarer(one: Villain, others: Sequence[Other], room: str) -> None:
    """Declare place after place where it would hear, to each of the others, and call again where it is cut."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(daemon_key(one.name)))

    def run(other: Other) -> None:
        numbers = iter(range(DECLARED))
        while True:
            link = Declarer(key, other.key, other.port)
            try:
                for _ in range(0, DECLARED, AT_ONCE):
                    for number in itertools.islice(numbers, AT_ONCE):
                        link.declare("subscriber", f"ezagent/{room}/index/{number}/updates")
                    time.sleep(CALL_AGAIN_SECONDS)
                    if link.peers() == 0:
                        break
            finally:
                link.close()
            numbers = iter(range(DECLARED))

    for other in others:
        _start(lambda other=other: run(other))  # type: ignore[misc]


VILLAINS: Final[dict[str, Callable[[Villain, Sequence[Other], str], None]]] = {
    "silent": silent,
    "junk": junk,
    "reader": reader,
    "forger": forger,
    "declarer": declarer,
}


def _start(run: Callable[[], None]) -> None:
    threading.Thread(target=run, daemon=True).start()
