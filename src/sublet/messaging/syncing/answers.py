"""What a peer is told when it asks: the signed log beyond its state vector, contents, and who its signers are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.passing.ephemeral import Ephemeral
from sublet.messaging.ports.blobs import BlobStore
from sublet.messaging.ports.rows import Fork
from sublet.messaging.ports.store import Store
from sublet.messaging.reconciling.exchange import differing
from sublet.messaging.reconciling.logs import RoomTree, tell
from sublet.messaging.reconciling.roots import Roots
from sublet.messaging.reconciling.told import Told, contents_of, records_of
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.standing import was_withdrawn
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.ezagent.blob import PIECE_BYTES, Piece, encode_piece, parse_wanted
from sublet.protocol.ezagent.bundle import RecordKind, encode_bundle
from sublet.protocol.ezagent.challenge import MAX_AGE_MS, encode_response, parse_challenge
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.inbox import parse_known
from sublet.protocol.ezagent.keys import doc_id, parse_doc_id
from sublet.protocol.ezagent.reconciliation import NodesAsked, decode_asked, encode_differing
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.vectors import decode_vector, fork_of

MAX_ANSWER_BYTES: Final = 512 << 10
"""A longer difference is told in parts, each after a query with a newer state vector; one update always fits."""
MAX_CONFIG_BYTES: Final = 5 << 20
"""Of a room's config that somebody is offered: they may come in at its very end."""


class AnswerParts(Protocol):
    """The parts of the engine for answering peers."""

    @property
    def blobs(self) -> BlobStore: ...

    @property
    def ephemeral(self) -> Ephemeral: ...

    @property
    def here(self) -> RoomsHere: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def now_ms(self) -> Callable[[], int]: ...

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def roots(self) -> Roots: ...

    @property
    def store(self) -> Store: ...


def answer(engine: AnswerParts, key: str, body: bytes) -> bytes | None:
    """Return the answer to a question of whoever may be answered; None where we know nothing about its key.

    Raises:
        Refused: the query is malformed.
    """
    if key.endswith("/state"):
        return state(engine, key.removesuffix("/state"), decode_vector(body or b"\0"))
    place = parse_doc_id(key)
    if place.kind == "root" and place.room_id is not None:
        return engine.roots.statement(place.room_id, body)
    if place.kind == "tree" and place.room_id is not None:
        return tree(engine, place.room_id, body)
    if place.kind == "pubkey" and place.entity_id is not None:
        record = engine.keyring.record(place.entity_id)
        return encode_bundle([(RecordKind.IDENTITY, record.encode())]) if record is not None else None
    if place.kind == "ephemeral" and place.room_id is not None and place.entity_id is not None:
        return engine.ephemeral.answer(place.room_id, place.entity_id)
    if place.kind == "challenge" and place.entity_id is not None:
        return challenged(engine, place.entity_id, body)
    if place.kind == "blob" and place.hash is not None:
        return piece(engine, place.hash, parse_wanted(body).offset)
    if place.kind == "inbox" and place.entity_id is not None:
        return inbox(engine, place.entity_id, parse_known(body))
    if place.kind == "content" and place.room_id is not None and place.content_id is not None:
        raw = engine.store.content(place.room_id, place.content_id)
        return encode_bundle([(RecordKind.CONTENT, raw)]) if raw is not None else None
    return None


def state(engine: AnswerParts, name: str, have: dict[int, int]) -> bytes | None:
    """Return what a document's log holds beyond a state vector, with the contents and the signers' records.

    Whoever knows that a client forks says that they have all of it; who does not is shown the proof.
    """
    row = engine.store.find_document(name)
    if row is None:
        return None
    told = Told(MAX_ANSWER_BYTES)
    for fork in engine.store.trust.forks(row.number):
        if fork.one and _is_news(fork, have.get(fork.client, 0)):
            proof = encode_bundle((RecordKind.ENVELOPE, envelope) for envelope in (fork.one, fork.other))
            if not told.add(fork.one, [(RecordKind.FORK, proof)]):
                break
    page, more = engine.store.log_after(row.number, have, MAX_ANSWER_BYTES)
    for raw in page:
        contents = contents_of(engine.store, row, raw) if row.kind == "index" and row.room_id is not None else []
        if not told.add(raw, [(RecordKind.ENVELOPE, raw), *((RecordKind.CONTENT, content) for content in contents)]):
            break
    if not told.records:
        return None
    records = [(RecordKind.IDENTITY, raw) for raw in records_of(engine.keyring, told.envelopes)]
    return encode_bundle([*records, *told.records], more=more or told.is_cut)


def tree(engine: AnswerParts, room_id: RoomId, body: bytes) -> bytes | None:
    """Return what differs below prefixes of a room's digest tree, or logs; None before it is summed up.

    Raises:
        Refused: the question is malformed.
    """
    asked = decode_asked(body)
    if not engine.store.tree.is_built:
        return None
    if isinstance(asked, NodesAsked):
        ours = RoomTree(engine.store, room_id)
        return encode_differing([differing(ours, below, asked.salt) for below in asked.below])
    return tell(engine, room_id, asked)


def piece(engine: AnswerParts, digest: str, offset: int) -> bytes | None:
    """Return a piece of a blob; None where it is not here, or ends before."""
    size = engine.blobs.size(digest)
    if size is None or offset >= size:
        return None
    return encode_piece(Piece(size, engine.blobs.read(digest, offset, PIECE_BYTES)))


def inbox(engine: AnswerParts, entity: EntityId, known: Collection[RoomId]) -> bytes | None:
    """Return the configs of rooms that we know an entity to be a member of, and that it does not; None where none is.

    Of a room that it knows and was taken out of before it came in, it is told that: its invitation is over.

    Args:
        engine: the engine.
        entity: a member.
        known: the rooms that it knows itself to be in. There are more where the answer says so.
    """
    return offer(engine, entity, sorted(engine.here.ids.difference(known)), engine.here.ids.intersection(known))


def offer(
    engine: AnswerParts, entity: EntityId, rooms: Iterable[RoomId], over: Collection[RoomId] = ()
) -> bytes | None:
    """Return the configs of those of some rooms that an entity is a member of, until they take ``MAX_ANSWER_BYTES``.

    Args:
        engine: the engine.
        entity: whom it is for.
        rooms: the rooms.
        over: rooms of which it is told where its invitation was taken back.
    """
    envelopes: list[bytes] = []
    size, more = 0, False
    for room_id in itertools.chain(rooms, sorted(over)):
        if engine.here.is_member(entity, room_id):
            config = _config(engine, room_id) if room_id not in over else []
        else:
            config = withdrawn(engine, entity, room_id) if room_id in over else []
        if not config:
            continue
        if more := size >= MAX_ANSWER_BYTES:
            break
        envelopes += config
        size += sum(map(len, config))
    if not envelopes:
        return None
    records = [(RecordKind.IDENTITY, raw) for raw in records_of(engine.keyring, envelopes)]
    return encode_bundle(records + [(RecordKind.ENVELOPE, raw) for raw in envelopes], more=more)


def withdrawn(engine: AnswerParts, entity: EntityId, room_id: RoomId) -> list[bytes]:
    """Return a room's config up to where an invitation was taken back; nothing where none was.

    What was said there afterwards is none of the business of who never was in.
    """
    state = engine.rooms.state(room_id)
    if room_id not in engine.here.ids or not was_withdrawn(engine.store, state, entity):
        return []
    client, clock = state.entities[entity].removals[-1].id
    config = _config(engine, room_id)
    for number, raw in enumerate(config):
        update = decode_update(unpack(raw).payload)
        if update.items and update.client == client and update.end > clock:
            return config[: number + 1]
    return []


def _config(engine: AnswerParts, room_id: RoomId) -> list[bytes]:
    row = engine.store.find_document(doc_id("config", room_id=room_id))
    return engine.store.log_after(row.number, {}, MAX_CONFIG_BYTES)[0] if row is not None else []


def challenged(engine: AnswerParts, entity: EntityId, raw: bytes) -> bytes | None:
    """Return the proof that one of our entities holds its key; None where it is none of ours.

    Raises:
        Refused: the challenge is malformed, forged, for somebody else, or not of now.
    """
    local = engine.keyring.local.get(entity)
    if local is None:
        return None
    challenge, _ = parse_challenge(raw)
    if challenge.responder != entity or abs(challenge.time_ms - engine.now_ms()) > MAX_AGE_MS:
        raise Refused(Refusal.BAD_SIGNATURE, "a challenge for somebody else, or not of now")
    return encode_response(challenge, local.record, local.key)


def behind(engine: AnswerParts, name: str, theirs: Mapping[int, int]) -> bool:
    """Tell whether somebody with that state vector of a document has something that we do not have."""
    row = engine.store.find_document(name)
    if row is None:
        return bool(theirs)
    ours = engine.store.clients(row.number)
    forks = {fork.client: fork.clock for fork in engine.store.trust.forks(row.number)}

    def lacks(client: int, clock: int) -> bool:
        fork, known = fork_of(clock), forks.get(client)
        if fork is not None:
            return known is None or fork < known
        return known is None and clock > (ours[client][0] if client in ours else 0)

    return any(lacks(client, clock) for client, clock in theirs.items())


def _is_news(fork: Fork, clock: int) -> bool:
    """Tell whether somebody whose vector has this clock does not know how far back a client forks."""
    known = fork_of(clock)
    return known is None or fork.clock < known
