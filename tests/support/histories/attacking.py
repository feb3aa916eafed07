"""A paired daemon that means harm: what each kind of attack sends over the bus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import zenoh

from sublet.messaging.backends.zenoh_network import ZenohNetwork
from sublet.messaging.ports.network import PeerQuery
from sublet.messaging.schema.datatypes import QOS_DATA
from sublet.messaging.schema.fields import Fields
from sublet.messaging.syncing.answers import offer
from sublet.protocol.ezagent.bundle import RecordKind, encode_bundle
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.ids import EntityId, RoomId, own_ref_id
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id
from sublet.protocol.ezagent.shards import month_of
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ezagent.yjs.update import Value
from support.rooms import Clock, Peer

JUNK_BYTES: Final = 256
JUNK_ANSWERS: Final = 300
"""To one question: more than are kept of all."""
REFS: Final = 12
AHEAD: Final = timedelta(days=45)
ROOMS: Final = 40
DECLARATIONS: Final = 2_000
OFFER_SECONDS: Final = 5.0
NOT_TIMES: Final[tuple[Value, ...]] = ("soon", "", "2026-13-45T99:99:99.000Z", "9" * 60, "\x00", 5, True, None, [1], {})
"""The last is left out altogether."""


class Attacker:
    """A daemon whose owner means harm, with a link to everybody.

    Args:
        name: of its entity.
        network: its own, which ``close`` closes.
        nonce: of this process, so that it does not sign two things for the same clocks.
    """

    def __init__(self, name: str, network: ZenohNetwork, nonce: int) -> None:
        self._peer = Peer(name, nonce, clock=Clock(_now_ms()))
        self._network = network
        self._undo: list[Callable[[], None]] = []
        self._held: list[Any] = []
        self._clocks: dict[str, int] = {}
        self._reads = threading.Event()
        self.id: EntityId = self._peer.id
        self._serve(doc_id("pubkey", entity_id=self.id), self._tell_key)

    def close(self) -> None:
        """Be gone."""
        self._reads.set()
        self._held.clear()
        self._network.close()

    def attack(self, how: str, room: RoomId, entities: Sequence[EntityId], seed: int) -> None:
        """Do what ``kinds`` says, once or until ``close``; blocks."""
        attacks: dict[str, Callable[[], None]] = {
            "malformed refs": partial(self._refs, room, seed, timedelta(0), NOT_TIMES),
            "refs ahead": partial(self._refs, room, seed, AHEAD, ()),
            "junk answers": self._junk,
            "silent answers": self._silent,
            "forced rooms": partial(self._rooms, entities),
            "declarations": self._declare,
            "stopped reader": self._stop_reading,
        }
        attacks[how]()

    def _serve(self, key: str, answer: Callable[[PeerQuery], None]) -> None:
        self._undo.append(self._network.serve(key, answer))

    def _tell_key(self, query: PeerQuery) -> None:
        query.reply(encode_bundle([(RecordKind.IDENTITY, self._peer.entity.record.encode())]))

    def _sessions(self) -> list[zenoh.Session]:
        """Return the sessions, one with each peer."""
        return [link.session for link in self._network._all() if link.session is not None]

    def _refs(self, room: RoomId, seed: int, ahead: timedelta, times: Sequence[Value]) -> None:
        """Write refs with these times, or with those of a month that has not come."""
        now = datetime.now(UTC)
        at = now + ahead
        name = doc_id("index", room_id=room, shard_id=month_of(at.year, at.month))
        heard = doc_id("index", room_id=room, shard_id=month_of(now.year, now.month))
        for number in range(REFS):
            clock = self._clocks.get(name, 0)
            transaction = Transaction(self._peer.client, clock)
            told: Value = at.isoformat(timespec="milliseconds")[:-6] + "Z"
            if times:
                told = times[(seed + number) % len(times)]
            ref: Fields = {
                "ref_id": own_ref_id(int(at.timestamp() * 1000) + number, room, self.id, clock),
                "author": self.id,
                "content_type": "immutable",
                "content_id": "sha256:" + "0" * 64,
                "created_at": told,
                "status": "active",
                "signature": "",
                "ext.channels": ["review"],
            }
            if told == {}:
                del ref["created_at"]
            transaction.append_maps("timeline", None, [ref])
            self._clocks[name] = transaction.clock
            raw = seal(self._peer.entity.key, self.id, name, _now_ms(), transaction.encode()).raw
            self._network.publish(channel_key(heard, Channel.UPDATES), raw, b"", QOS_DATA)

    def _junk(self) -> None:
        def answer(query: zenoh.Query) -> None:
            for number in range(JUNK_ANSWERS):
                query.reply(str(query.key_expr), bytes([number % 256]) * JUNK_BYTES)

        self._held += [session.declare_queryable("ezagent/**", answer) for session in self._sessions()]

    def _silent(self) -> None:
        self._held += [session.declare_queryable("ezagent/**", self._held.append) for session in self._sessions()]

    def _rooms(self, entities: Sequence[EntityId]) -> None:
        """Make rooms with everybody as a member, and tell them of these."""
        self._peer.clock.now_ms = _now_ms()
        made = [
            self._peer.do("room.create", name=f"forced {number}", invite=list(entities))["room_id"]
            for number in range(ROOMS)
        ]
        for entity in entities:
            key = channel_key(doc_id("inbox", entity_id=entity), Channel.UPDATES)
            for begin in range(0, ROOMS, 10):
                payload = offer(self._peer.engine, entity, made[begin : begin + 10])
                for session in self._sessions() if payload is not None else ():
                    list(session.get(key, payload=payload, timeout=OFFER_SECONDS))  # ends with the last answer

    def _declare(self) -> None:
        for session in self._sessions():
            for number in range(DECLARATIONS):
                self._held.append(session.declare_subscriber(f"ezagent/{number:08}/config/updates", _nothing))

    def _stop_reading(self) -> None:
        def stop(sample: zenoh.Sample) -> None:
            self._reads.wait()

        stopped = zenoh.handlers.Callback(stop, indirect=False)  # on Zenoh's own thread, which then reads nothing more
        self._held += [session.declare_subscriber("ezagent/**", stopped) for session in self._sessions()]


def _nothing(sample: zenoh.Sample) -> None:
    """Hear what nobody says."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
