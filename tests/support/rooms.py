"""Engines over stores in memory, joined by hand: what one publishes is given to the others when a test says so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from sublet.daemon.config.daemon_config import Bus, Listen
from sublet.messaging.accepting.arrival import Arrival, ArrivalReport
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.engine.engine import Engine
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.ports.outbox import Outgoing
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle
from sublet.protocol.ezagent.identity import EntityKind, make_record
from sublet.protocol.ezagent.keys import doc_id

NOW_MS = 1_795_852_800_000
ANY_BUS = Bus(Listen("127.0.0.1", 0, chosen=True))


def entity_key(name: str) -> SigningKey:
    """Return the same key for the same name."""
    return SigningKey(hashlib.sha256(name.encode()).digest())


def daemon_key(name: str) -> SigningKey:
    """Return the identity key of the daemon that an entity of ``local_entity`` has for its own."""
    return entity_key(f"daemon of {name}")


def local_entity(
    name: str, nonce: int, kind: EntityKind = EntityKind.AGENT, daemon: SigningKey | None = None
) -> LocalEntity:
    """Return an entity of a daemon of its own, or of the one with the identity key that is given."""
    key = entity_key(name)
    return LocalEntity(make_record(name, kind, bytes(key.verify_key), daemon or daemon_key(name), 1), key, nonce)


@dataclass
class Clock:
    """A clock that goes when it is told to."""

    now_ms: int = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class MemoryBlobs:
    """Blobs in memory, of which none grows old."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.kept[digest] = data
        return digest

    def size(self, digest: str) -> int | None:
        return len(self.kept[digest]) if digest in self.kept else None

    def read(self, digest: str, offset: int, length: int) -> bytes:
        return self.kept[digest][offset : offset + length]

    def all(self) -> Iterator[tuple[str, int, float]]:
        for digest, data in self.kept.items():
            yield digest, len(data), 0.0

    def drop(self, digest: str) -> None:
        self.kept.pop(digest, None)


_registries: dict[tuple[int, ...], Registry] = {}
MAX_REGISTRIES = 16


def registry_of(declarations: tuple[Declaration, ...]) -> Registry:
    """Return the registry of declarations, made once: nothing changes it, and it takes half as long as a peer does."""
    of = tuple(map(id, declarations))  # which stay what they are as long as their registry is here
    if of not in _registries:
        if len(_registries) >= MAX_REGISTRIES:
            _registries.clear()
        _registries[of] = Registry(declarations)
    return _registries[of]


@dataclass
class Peer:
    """One engine with one entity."""

    name: str
    nonce: int
    path: Path | None = None
    declarations: tuple[Declaration, ...] = BUILT_INS
    clock: Clock = field(default_factory=Clock)
    kind: EntityKind = EntityKind.AGENT
    daemon: SigningKey | None = None

    def __post_init__(self) -> None:
        self.entity = local_entity(self.name, self.nonce, self.kind, self.daemon)
        self.id = self.entity.record.entity_id
        self.client = self.entity.client
        self.open()

    def open(self) -> None:
        """Open the engine; again, over the same file, after ``close``."""
        self.store = SqliteStore(self.path)
        self.blobs = MemoryBlobs()
        self.engine = Engine(registry_of(self.declarations), self.store, [self.entity], self.clock, self.blobs)

    def do(self, operation: str, /, **arguments: Any) -> Any:
        """Run an operation and make it durable."""
        answer = run_operation(self.engine.registry.operations, self.engine.operating, self.id, operation, arguments)
        self.engine.commit()
        return answer

    def published(self) -> list[Outgoing]:
        """Return what was published since the last call."""
        return self.engine.outbox.take()

    def hear(self, outgoing: Iterable[Outgoing]) -> ArrivalReport:
        """Take what somebody has published."""
        return self.engine.intake.take([arrival(item) for item in outgoing])

    def catch_up(self, other: Peer, room: str) -> None:
        """Take all of a room that another has."""
        self.engine.here.want(room)
        documents = [doc_id("config", room_id=room)]
        documents += [row.doc_id for kind in ("index", "ext") for row in other.store.documents(room, kind)]
        for name in documents:
            envelopes, _ = other.store.log_after(other.engine.documents.open(name).row.number, {}, 1 << 30)
            self.engine.intake.take([Arrival(raw) for raw in envelopes])

    def meet(self, *others: Peer) -> None:
        """Learn who the others are."""
        for other in others:
            self.engine.intake.learn(other.entity.record.encode())

    def bodies(self, room: str) -> list[str | None]:
        """Return the bodies of a room's last messages."""
        refs = self.do("timeline.list", room_id=room, limit=200)["refs"]
        return [ref.get("body") for ref in refs]

    def kinds(self) -> list[str]:
        """Return the kinds of all events so far."""
        return [event.kind for event in self.engine.events.since(0)]

    def refused(self) -> dict[str, int]:
        """Return how often updates were refused, by reason."""
        return {
            str(reason): count
            for reason, count in self.engine.intake.counts.items()
            if reason not in ("accepted", "duplicate", "held", "gathered")
        }


def arrival(item: Outgoing) -> Arrival:
    """Return what was published as it arrives elsewhere."""
    contents = decode_bundle(item.attachment).of(RecordKind.CONTENT) if item.attachment else []
    return Arrival(item.payload, tuple(contents))


def peers(*names: str, **options: Any) -> list[Peer]:
    """Return peers who know each other."""
    made = [Peer(name, 1000 + index, **options) for index, name in enumerate(names)]
    for peer in made:
        peer.meet(*(other for other in made if other is not peer))
    return made


def shared_room(*members: Peer, policy: str = "invite") -> str:
    """Return a room of the first peer that all of them have and are members of."""
    first, *others = members
    room: str = first.do("room.create", name="room", policy=policy, invite=[other.id for other in others])["room_id"]
    out = first.published()
    for other in others:
        other.engine.here.want(room)
        other.hear(out)
    return room
