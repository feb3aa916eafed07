"""What a hostile member sends in rooms, as small pieces: acknowledgements, questions, presence, configs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions.presence import PRESENCES
from sublet.messaging.ports.network import Sample
from sublet.protocol.ezagent.bundle import RecordKind, encode_bundle
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.ids import client_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.writer import write_number
from support.rooms import Peer, peers, shared_room

LISTS = b'{"a":[' + b",".join([b"[]"] * 660) + b"]}"
"""Two kilobytes of JSON that are 40 kilobytes of memory when they are parsed."""


@dataclass
class Query:
    """An invitation or a question, and what became of it."""

    payload: bytes
    key: str = "ezagent/nowhere"
    peer: str = ""
    became: str | None = None

    def reply(self, payload: bytes) -> None:
        self.became = "read"

    def drop(self) -> None:
        self.became = "dropped"


def acknowledgement(peer: Peer, room: str, size: int) -> Sample:
    """Return what looks like an acknowledgement of somebody, of so many bytes."""
    name = doc_id("delivery", room_id=room)
    raw = seal(peer.entity.key, peer.id, name, peer.clock(), bytes(size)).raw
    return Sample(name, encode_bundle([(RecordKind.ENVELOPE, raw)]), b"")


def present() -> tuple[Peer, Peer, str]:
    """Return two members of a room in which presence is offered."""
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, PRESENCES))
    return alice, bob, shared_room(alice, bob)


def saying(peer: Peer, room: str, payload: bytes) -> Arrival:
    """Return what a member says in passing."""
    name = doc_id("ephemeral", room_id=room, ext_id="awareness", entity_id=peer.id)
    return Arrival(seal(peer.entity.key, peer.id, name, peer.clock(), payload).raw)


def statements(peer: Peer, room: str, number: int, nonce: int = 77) -> Iterator[Arrival]:
    """Yield so many writes of a config's field by a member whom nobody lets write it, each an update of its own."""
    client = client_id(peer.id, nonce)
    for clock in range(number):
        out = bytearray()
        for value in (1, 1, client, clock):
            write_number(out, value)
        out += b"\x28\1\6config\4name\1\x77\1x\0" if not clock else _after(client, clock)
        yield Arrival(seal(peer.entity.key, peer.id, doc_id("config", room_id=room), peer.clock(), bytes(out)).raw)


def _after(client: int, clock: int) -> bytes:
    """Return an item that stands behind the one before it, and takes its place."""
    out = bytearray(b"\xa8")
    write_number(out, client)
    write_number(out, clock - 1)
    return bytes(out) + b"\1\x77\1x\0"
