"""What recipients have acknowledged of what we wrote, and what we acknowledge to others; on the engine's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from sublet.messaging.events.events import Events
from sublet.messaging.identities.epochs import Epochs
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.intake.intake import Intake
from sublet.messaging.opening.shards import TimelineShards
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.standing import DELIVERED, JOINED_EVENT, has_joined, joined_entry, pending
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.syncing.answers import AnswerParts, behind
from sublet.protocol.ezagent.acknowledgement import (
    MAX_CLIENTS,
    MAX_SHARDS,
    Acknowledgement,
    Clocks,
    parse_acknowledgement,
)
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.envelope import seal, unpack, verify
from sublet.protocol.ezagent.identity import parse_record
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.shards import month, previous_month
from sublet.protocol.ezagent.yjs.update import ItemId

MAX_ROWS: Final = MAX_SHARDS * MAX_CLIENTS


class AcknowledgedParts(AnswerParts, Protocol):
    """The parts of the engine for what daemons have acknowledged."""

    @property
    def epochs(self) -> Epochs: ...

    @property
    def events(self) -> Events: ...

    @property
    def here(self) -> RoomsHere: ...

    @property
    def intake(self) -> Intake: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def now_ms(self) -> Callable[[], int]: ...

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def shards(self) -> TimelineShards: ...

    @property
    def store(self) -> Store: ...


def delivered_until(engine: AcknowledgedParts, room_id: RoomId, recipient: EntityId, shard: str, client: int) -> int:
    """Return the clock up to which a recipient holds what one of our processes wrote to a shard; 0 for none of it."""
    below = _rank(shard, client) + "!"
    found = engine.store.scan_index(DELIVERED, f"{room_id}/{recipient}", 1, below)
    return _clock(found[0]) if found and found[0].rank == _rank(shard, client) else 0


def is_delivered(engine: AcknowledgedParts, room_id: RoomId, recipient: EntityId, shard: str, item: ItemId) -> bool:
    """Tell whether a recipient holds an item: it is one of ours here, or its daemon has signed that it holds it."""
    return recipient in engine.keyring.local or delivered_until(engine, room_id, recipient, shard, item[0]) > item[1]


def acknowledge(engine: AcknowledgedParts, room_id: RoomId, asked: Clocks) -> list[bytes]:
    """Return signed statements of our members of a room that they hold what others wrote.

    Args:
        engine: the engine.
        room_id: the room.
        asked: shards and clients to tell of; the clocks in it say nothing. Of none, that they are there is told.
    """
    held: dict[str, dict[int, int]] = {}
    for shard, wanted in asked.items():
        row = engine.store.find_document(doc_id("index", room_id=room_id, shard_id=shard))
        ours = engine.store.clients(row.number) if row is not None else {}
        vector = {client: ours[client][0] for client in wanted if client in ours}
        if vector:
            held[shard] = vector
    if asked and not held:
        return []
    payload, document = Acknowledgement(engine.epochs.own, held).encode(), doc_id("delivery", room_id=room_id)
    return [
        seal(engine.keyring.key(entity), entity, document, engine.now_ms(), payload).raw
        for entity in engine.keyring.local
        if engine.here.is_member(entity, room_id)
    ]


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of acknowledgements.

    ``news`` is true where any says more than was known, ``unknown`` where a signer's key is missing. ``ahead`` has
    what members hold of documents of which we lack some of that, by document.
    """

    news: bool = False
    unknown: bool = False
    ahead: Clocks = field(default_factory=dict)


def take(engine: AcknowledgedParts, room_id: RoomId, raw: bytes) -> Taken:
    """Keep what a bundle of acknowledgements says of what we wrote.

    Who is no member of the room is not listened to; nobody can say that more has arrived than was written.

    Raises:
        Refused: the bundle is malformed, or a signature does not fit.
    """
    news = unknown = False
    ahead: dict[str, Mapping[int, int]] = {}
    bundle = decode_bundle(raw)
    for record in bundle.of(RecordKind.IDENTITY):
        if engine.here.is_member(parse_record(record).entity_id, room_id):
            engine.intake.learn(record)
    for record in bundle.of(RecordKind.ENVELOPE):
        envelope = unpack(record)
        signer = envelope.signer
        fits = envelope.doc_id == doc_id("delivery", room_id=room_id)
        if not fits or signer in engine.keyring.local or not engine.here.is_member(signer, room_id):
            continue
        keys = engine.keyring.speaking(signer)
        if keys is None:
            unknown = True
            continue
        verify(envelope, keys)
        found = parse_acknowledgement(envelope.payload)
        entries = list(_news(engine, room_id, signer, found.clocks))
        if not has_joined(engine.store, room_id, signer):
            _note_joined(engine, room_id, signer)
        engine.store.put_index(entries)
        engine.epochs.learn(signer, found.epoch, envelope.timestamp_ms)
        news = news or bool(entries)
        ahead |= behind_of(engine, _heard(engine, room_id, found.clocks))
    return Taken(news, unknown, ahead)


def _note_joined(engine: AcknowledgedParts, room_id: RoomId, signer: EntityId) -> None:
    with engine.store.transaction():
        engine.store.put_index([joined_entry(room_id, signer, engine.now_ms())])
        engine.events.tell(JOINED_EVENT, room_id, {"by": signer})
        events = engine.events.write()
    engine.events.publish(events)


def behind_of(engine: AcknowledgedParts, held: Clocks) -> Clocks:
    """Return of what somebody holds, by document, those documents of which we lack some of that."""
    return {name: vector for name, vector in held.items() if behind(engine, name, vector)}


def question(engine: AcknowledgedParts, room_id: RoomId) -> dict[str, dict[int, int]]:
    """Return what of ours in a room somebody has not acknowledged yet: by shard, our clients' clocks."""
    recipients = [member for member in engine.rooms.state(room_id).members() if member not in engine.keyring.local]
    open_: dict[str, dict[int, int]] = {}
    if not recipients:
        return open_
    known = {
        recipient: {
            entry.rank: _clock(entry)
            for entry in engine.store.scan_index(DELIVERED, f"{room_id}/{recipient}", MAX_ROWS)
        }
        for recipient in recipients
    }
    for shard, client, clock in _written(engine, room_id):
        if any(rows.get(_rank(shard, client), 0) < clock for rows in known.values()):
            open_.setdefault(shard, {})[client] = clock
    return {
        shard: dict(list(open_[shard].items())[-MAX_CLIENTS:]) for shard in sorted(open_, reverse=True)[:MAX_SHARDS]
    }


def is_awaited(engine: AcknowledgedParts, room_id: RoomId) -> bool:
    """Tell whether a member was invited who has not shown to be there, as whoever is there does when asked."""
    return bool(pending(engine.store, engine.rooms.state(room_id), engine.keyring.local))


def answer(engine: AcknowledgedParts, room_id: RoomId, payload: bytes) -> bytes | None:
    """Return the answer to a question of ``question``; None where nothing of it is here.

    Raises:
        Refused: it is malformed.
    """
    asked = parse_acknowledgement(payload).clocks
    envelopes = acknowledge(engine, room_id, asked)
    if not envelopes:
        return None
    signers = [own.record for entity, own in engine.keyring.local.items() if engine.here.is_member(entity, room_id)]
    records = [(RecordKind.IDENTITY, record.encode()) for record in signers]
    return encode_bundle([*records, *((RecordKind.ENVELOPE, raw) for raw in envelopes)])


def bundle_of(envelopes: Iterable[bytes], records: Iterable[bytes] = ()) -> bytes:
    """Return acknowledgements as one message, with the records of whose devices are others than before."""
    told = ((RecordKind.IDENTITY, raw) for raw in records)
    return encode_bundle([*told, *((RecordKind.ENVELOPE, raw) for raw in envelopes)])


def records_with_devices(engine: AcknowledgedParts, room_id: RoomId) -> list[bytes]:
    """Return the records of our members of a room that have several devices."""
    ours = [own.record for entity, own in engine.keyring.local.items() if engine.here.is_member(entity, room_id)]
    return [record.encode() for record in ours if record.statements]


def _written(engine: AcknowledgedParts, room_id: RoomId) -> Iterator[tuple[str, int, int]]:
    """Yield shard, client and next clock of everything that we ever wrote to a room's timeline."""
    for entity in engine.keyring.local:
        for name, clients in engine.store.clients_of(room_id, entity).items():
            kind, _, shard = name.split("/", 2)[2].partition("/")
            if kind == "index":
                yield from ((shard, client, clock) for client, clock in clients.items())


def _heard(engine: AcknowledgedParts, room_id: RoomId, clocks: Clocks) -> Clocks:
    """Return clocks by document, of the last months and those to come; who reads further back asks for older ones."""
    first = previous_month(engine.shards.current_month())
    shards = [shard for shard in clocks if month(shard) >= first]
    return {doc_id("index", room_id=room_id, shard_id=shard): clocks[shard] for shard in shards}


def _news(engine: AcknowledgedParts, room_id: RoomId, recipient: EntityId, clocks: Clocks) -> Iterator[IndexEntry]:
    for shard, vector in clocks.items():
        row = engine.store.find_document(doc_id("index", room_id=room_id, shard_id=shard))
        ours = engine.store.clients(row.number) if row is not None else {}
        for client, claimed in vector.items():
            written, signer = ours.get(client, (0, ""))
            clock = min(claimed, written)
            if signer in engine.keyring.local and clock > delivered_until(engine, room_id, recipient, shard, client):
                key, rank = f"{room_id}/{recipient}", _rank(shard, client)
                yield IndexEntry(DELIVERED, key, rank, {"clock": clock, "at_ms": engine.now_ms()})


def _rank(shard: str, client: int) -> str:
    return f"{shard}/{client}"


def _clock(entry: IndexEntry) -> int:
    clock = entry.value["clock"]
    return clock if isinstance(clock, int) else 0
