"""Devices that share a room's keys, over a bus that loses nothing but may be late, and a hostile one among them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from sublet.protocol.ezagent.sealing.core import step
from sublet.protocol.ezagent.sealing.envelope import Header, Sealed, open_sealed, seal, unpack
from sublet.protocol.ezagent.sealing.events import (
    Complaint,
    Event,
    KeysForgotten,
    RosterChanged,
    Say,
    StatementsCame,
    Tell,
    TimePassed,
    Wake,
)
from sublet.protocol.ezagent.sealing.state import (
    History,
    Member,
    OwnDevice,
    Phase,
    RoomKeys,
    phase_of,
    reading_key,
    writing_key,
)
from sublet.protocol.ezagent.sealing.statements import KeyStatement, parse_statement
from sublet.protocol.ezagent.sealing.wire import DeviceId

ROOM = "01957a3b-0000-7000-8000-000000000005"
DOC = f"ezagent/{ROOM}/index/2026-11"


def own_device(seed: int) -> OwnDevice:
    """Return the keys of a device."""
    return OwnDevice(SigningKey(seed.to_bytes(2, "big") * 16), (PrivateKey(seed.to_bytes(2, "little") * 16),))


@dataclass
class Peer:
    """One device: its state, what it was told, and when it is to look again."""

    seed: int
    entity: str
    now_ms: int = 0
    wake_ms: int | None = None
    said: list[KeyStatement] = field(default_factory=list)
    heard: set[bytes] = field(default_factory=set)
    told: list[Tell] = field(default_factory=list)
    drawn: int = 0

    def __post_init__(self) -> None:
        self.state = RoomKeys(ROOM, own_device(self.seed))

    @property
    def id(self) -> DeviceId:
        return self.state.own.id

    @property
    def member(self) -> Member:
        return Member(self.entity, bytes(self.state.own.seal_keys[0].public_key))

    def phase(self) -> Phase:
        return phase_of(self.state)

    def do(self, event: Event) -> None:
        """Take an event, and do what is to be done."""
        self.state, outputs = step(self.state, event, self.now_ms)
        for output in outputs:
            if isinstance(output, Say):
                self.said.append(parse_statement(output.statement.encode()))
                self.heard.add(output.statement.signature)
            elif isinstance(output, Tell):
                self.told.append(output)
            elif isinstance(output, Wake):
                self.wake_ms = output.at_ms

    def roster(
        self,
        peers: list[Peer],
        *,
        by_us: bool = False,
        history: History = History.SHARED,
        removals: frozenset[bytes] = frozenset(),
    ) -> None:
        self.do(RosterChanged({peer.id: peer.member for peer in peers}, history, removals, by_us))

    def hears(self, statements: list[KeyStatement]) -> None:
        new = tuple(one for one in statements if one.signature not in self.heard)
        self.heard.update(one.signature for one in new)
        if new:
            self.do(StatementsCame(new))

    def looks(self) -> None:
        """Let the time come at which it wants to look again."""
        if self.wake_ms is not None and self.wake_ms <= self.now_ms:
            self.wake_ms = None
            self.drawn += 1
            self.do(TimePassed(random.Random(self.seed * 100_003 + self.drawn).randbytes(32)))

    def forgets(self, below: int) -> None:
        self.do(KeysForgotten(below))

    def writes(self, plain: bytes) -> Sealed | None:
        """Return something sealed for the room; None while nothing may be."""
        found = writing_key(self.state)
        if found is None:
            return None
        return unpack(seal(self.state.own.signing, found[1], Header(self.id, DOC, found[0]), plain).raw)

    def reads(self, sealed: Sealed) -> bytes | None:
        """Return what was sealed; None where the key is not here."""
        key = reading_key(self.state, sealed.header.epoch)
        return open_sealed(sealed, key) if key is not None else None

    def complaints(self) -> set[Complaint]:
        return {tell.complaint for tell in self.told}


def said_by(peers: list[Peer]) -> list[KeyStatement]:
    """Return all that some have said."""
    return [statement for peer in peers for statement in peer.said]


def settle(peers: list[Peer], listening: list[Peer] | None = None, seconds: int = 200) -> None:
    """Let time pass and all that was said arrive, until nobody has anything to do."""
    for _ in range(seconds):
        for peer in peers:
            peer.looks()
        said = said_by(listening or peers)
        for peer in listening or peers:
            peer.hears(said)
        for peer in peers:
            peer.now_ms += 1_000
        if all(peer.wake_ms is None for peer in peers):
            return


def room_of(*entities: str) -> list[Peer]:
    """Return peers that share a key, a device for each entity."""
    peers = [Peer(seed, entity) for seed, entity in enumerate(entities, 1)]
    for peer in peers:
        peer.roster(peers, by_us=peer is peers[0])
    settle(peers, seconds=20)
    return peers
