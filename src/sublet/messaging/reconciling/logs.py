"""What is asked for, and told, of documents that differ: the logs beyond the heads that the asker has.

Rules: an answer ends after ``MAX_TOLD_BYTES`` and names with which place it is to be gone on. Where the asker has
another history of a client than we, the whole log of that client is told, which shows the fork. Weak: an asker that
has the same updates cut at other clocks is told them again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.intake.intake import Intake
from sublet.messaging.ports.rows import DocumentRow
from sublet.messaging.ports.store import Store
from sublet.messaging.ports.tree_store import Leaf
from sublet.messaging.quotas.quotas import Quotas
from sublet.messaging.reconciling.told import Told, contents_of, records_of
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, encode_bundle
from sublet.protocol.ezagent.digest_tree import Node, Prefix, head_fingerprint
from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.reconciliation import (
    ALL_CLIENTS,
    MAX_FORKS,
    MAX_HEADS,
    MAX_LOGS,
    UNKNOWN_HEAD,
    HeadAsked,
    LogAsked,
    LogsAsked,
)
from sublet.protocol.ezagent.yjs.update import MAX_CLOCK

MAX_TOLD_BYTES: Final = 512 << 10
"""A longer answer is told in parts; one update always fits."""
_GO_ON: Final = struct.Struct(">H")


class RoomTree:
    """The digest tree of one room.

    Args:
        store: where it is.
        room_id: the room.
    """

    def __init__(self, store: Store, room_id: RoomId) -> None:
        self._store = store
        self._room_id = room_id

    def children(self, prefix: Prefix) -> list[Node]:
        """Return the nodes of a prefix with each further digit."""
        return self._store.tree.children(self._room_id, prefix)

    def leaves(self, prefix: Prefix) -> list[Leaf] | None:
        """Return the leaves below a prefix; None where they are more than are told one by one."""
        return self._store.tree.leaves(self._room_id, prefix)


class AskingParts(Protocol):
    """The parts of the engine for asking for logs."""

    @property
    def intake(self) -> Intake: ...

    @property
    def quotas(self) -> Quotas: ...

    @property
    def store(self) -> Store: ...


class TellingParts(Protocol):
    """The parts of the engine for telling logs."""

    @property
    def keyring(self) -> Keyring: ...

    @property
    def store(self) -> Store: ...


def wanted(engine: AskingParts, room_id: RoomId, places: Sequence[bytes], salt: bytes) -> list[LogAsked]:
    """Return what is to be asked for at some places, with what is here; a document of many clients comes in parts."""
    found: list[LogAsked] = []
    for place in places:
        leaf = engine.store.tree.leaf(room_id, place)
        if leaf is None:
            if not engine.store.purges.is_place_gone(room_id, place):  # who has it still has not heard that it is gone
                found.append(LogAsked(place))
        elif not leaf.seq:  # what only deletes is here as a whole
            found += _of_document(engine, place, leaf.document, salt)
    return found


def first_question(logs: Sequence[LogAsked], salt: bytes) -> LogsAsked:
    """Return a question for as many of some logs as one question holds, the first ones."""
    taken: list[LogAsked] = []
    heads = forks = 0
    for log in logs[:MAX_LOGS]:
        heads, forks = heads + len(log.heads), forks + len(log.forks)
        if taken and (heads > MAX_HEADS or forks > MAX_FORKS):
            break
        taken.append(log)
    return LogsAsked(salt, tuple(taken))


def tell(engine: TellingParts, room_id: RoomId, asked: LogsAsked) -> bytes:
    """Return what is at the places that are asked for and beyond what the asker has."""
    told = Told(MAX_TOLD_BYTES)
    go_on: int | None = None
    for number, log in enumerate(asked.logs):
        leaf = engine.store.tree.leaf(room_id, log.place)
        if leaf is not None and not _tell_one(engine, told, leaf, log, asked.salt):
            go_on = number
            break
    records = [(RecordKind.IDENTITY, raw) for raw in records_of(engine.keyring, told.envelopes)]
    if go_on is not None:
        records.append((RecordKind.GO_ON, _GO_ON.pack(go_on)))
    return encode_bundle([*records, *told.records], more=go_on is not None)


def go_on_at(answer: Bundle, asked: LogsAsked) -> int:
    """Return with which of the logs of a question to go on; as many as there are where all of them were told.

    Raises:
        Refused: ``MALFORMED``.
    """
    found = answer.of(RecordKind.GO_ON)
    if not found:
        return len(asked.logs)
    if len(found[0]) != _GO_ON.size:
        raise malformed("an answer that goes on nowhere")
    (number,) = _GO_ON.unpack(found[0])
    if number >= len(asked.logs):
        raise malformed("an answer that goes on with what was not asked for")
    return int(number)


def _of_document(engine: AskingParts, place: bytes, number: int, salt: bytes) -> Iterator[LogAsked]:
    row = engine.store.numbered(number)
    if row is None:  # it was damaged, and is mended just now
        yield LogAsked(place)
        return
    name = row.doc_id
    heads = {
        client: HeadAsked(client, head.clock, head_fingerprint(head.hash, salt))
        for client, head in engine.store.trust.heads(number).items()
    }
    for clocks in (engine.quotas.passed_over(name), engine.intake.gathering.clocks(name)):
        for client, clock in clocks.items():
            if client not in heads or heads[client].clock < clock:
                heads[client] = HeadAsked(client, clock, UNKNOWN_HEAD)
    forks = tuple((fork.client, fork.clock) for fork in engine.store.trust.forks(number))[:MAX_FORKS]
    if not heads:
        yield LogAsked(place, (), forks)
        return
    first = ALL_CLIENTS[0]
    ordered = sorted(heads.values(), key=lambda head: head.client)
    parts = [ordered[at : at + MAX_HEADS] for at in range(0, len(ordered), MAX_HEADS)]
    for at, part in enumerate(parts):
        beyond = parts[at + 1][0].client if at + 1 < len(parts) else ALL_CLIENTS[1]
        yield LogAsked(place, tuple(part), forks if not at else (), (first, beyond))
        first = beyond


def _tell_one(engine: TellingParts, told: Told, leaf: Leaf, log: LogAsked, salt: bytes) -> bool:
    """Tell what is at one place; return whether there was room for all of it."""
    if leaf.seq:
        raw = engine.store.envelope(leaf.seq)
        return told.add(raw, [(RecordKind.ENVELOPE, raw)])
    row = engine.store.numbered(leaf.document)
    if row is None:
        return True
    if log.clients[0] == ALL_CLIENTS[0]:
        known = dict(log.forks)
        for fork in engine.store.trust.forks(row.number):
            if fork.one and fork.clock < known.get(fork.client, MAX_CLOCK + 1):
                proof = encode_bundle((RecordKind.ENVELOPE, envelope) for envelope in (fork.one, fork.other))
                if not told.add(fork.one, [(RecordKind.FORK, proof)]):
                    return False
    page, more = engine.store.updates_after(row.number, _have(engine.store, row, log, salt), MAX_TOLD_BYTES)
    for raw in page:
        contents = contents_of(engine.store, row, raw) if row.kind == "index" else []
        if not told.add(raw, [(RecordKind.ENVELOPE, raw), *((RecordKind.CONTENT, content) for content in contents)]):
            return False
    return not more


def _have(store: Store, row: DocumentRow, log: LogAsked, salt: bytes) -> dict[int, int]:
    """Return up to which clock the asker has what each of our clients wrote, as far as its history is ours."""
    first, beyond = log.clients
    asked: Mapping[int, HeadAsked] = {head.client: head for head in log.heads}
    have: dict[int, int] = {}
    for client, (clock, _) in store.clients(row.number).items():
        if not first <= client < beyond:
            have[client] = clock
        elif (head := asked.get(client)) is not None:
            if head.clock > clock or head.fingerprint == UNKNOWN_HEAD:
                have[client] = head.clock
            else:
                ours = store.trust.head(row.number, client, head.clock)
                same = ours is not None and head_fingerprint(ours, salt) == head.fingerprint
                have[client] = head.clock if same else 0
    return have
