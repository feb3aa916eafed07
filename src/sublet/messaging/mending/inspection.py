"""Looks whether what the database keeps of each document is what follows from its signed log.

Each update of the log has to be an envelope of its document that its signer has signed. The rest (who wrote up to
where, the chain of hashes, elements, writes, deletions) is worked out once more in memory, by the code that made it,
and compared, with the digest that each commit keeps too. So a row that is gone, of the log or of what follows from it,
shows as well as one that was changed.

Weak: what is gone with all that follows from it and with its digest shows only beside what members have. What is shown
of strangers, and what extensions keep in indexes, is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nacl.signing import VerifyKey

from sublet.messaging.accepting.staging import LeftOut
from sublet.messaging.backends.sqlite_rows import SqliteRows
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.engine.engine import Engine
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.mending.trials import Trials
from sublet.messaging.ports.rows import DocumentRow
from sublet.protocol.ezagent.content import named_contents
from sublet.protocol.ezagent.envelope import Envelope, unpack, verify
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.identity import parse_record
from sublet.protocol.ezagent.ids import ContentId, EntityId
from sublet.protocol.ezagent.keys import parse_doc_id
from sublet.protocol.ezagent.yjs.decode import decode_update

Keys = Mapping[EntityId, tuple[VerifyKey, ...]]
MAX_WORKED_OUT_BYTES: Final = 32 << 20
"""Of one document's envelopes; what follows from longer ones is not worked out, since all of it is in memory then."""
MAX_MISSING: Final = 4_096
"""Contents of one document that are named as missing."""


@dataclass(slots=True)
class Found:
    """What is wrong with a document.

    Args:
        document: which.
        why: in words; empty where its rows are right.
        missing: contents that its updates name and that are not here, each with an envelope that names it.
    """

    document: DocumentRow
    why: str = ""
    missing: dict[ContentId, bytes] = field(default_factory=dict)


class KnownKeys:
    """Keys by entity, as records prove them; what proves nothing is left out.

    Args:
        local: our own entities.
    """

    def __init__(self, local: Iterable[LocalEntity]) -> None:
        self._own = {one.record.entity_id: one.record.log_keys() for one in local}
        self._proven: dict[bytes, tuple[EntityId, tuple[VerifyKey, ...]]] = {}

    def of(self, records: Iterable[bytes]) -> Keys:
        """Return the keys of our own entities and of these records, each of which is proven once."""
        proven: dict[bytes, tuple[EntityId, tuple[VerifyKey, ...]]] = {}
        for raw in records:
            known = self._proven.get(raw)
            if known is None:
                try:
                    record = parse_record(raw)
                except Refused:
                    continue
                known = record.entity_id, record.log_keys()
            proven[raw] = known
        self._proven = proven
        return dict(proven.values()) | self._own


def sound(raw: bytes, doc_id: str, keys: Keys) -> Envelope:
    """Return an envelope of the log.

    Raises:
        Refused: it is none, of another document, or its signer, if known, has not signed it.
    """
    envelope = unpack(raw)
    if envelope.doc_id != doc_id:
        raise ValueError(f"it is of another document, {envelope.doc_id}")
    signers = keys.get(envelope.signer)
    if signers is not None:
        verify(envelope, signers)
    decode_update(envelope.payload)
    return envelope


def inspect(
    rows: SqliteRows,
    document: DocumentRow,
    keys: Keys,
    trials: Trials,
    pause: Callable[[], None] = lambda: None,
) -> Found:
    """Return what is wrong with a document. Blocks; ``pause`` is called every few updates.

    Args:
        rows: the database.
        document: which one.
        keys: whose key is whose.
        trials: where it is worked out once more.
        pause: lets others have their turn.
    """
    found = Found(document)
    if not is_named_right(document):
        found.why = "its name and what is kept of that do not fit"
        return found
    with rows.moment():
        found.why = rows.sums().why(document)
    if found.why:
        return found
    if rows.size(document.number) > MAX_WORKED_OUT_BYTES:
        return _inspect_long(rows, found, keys, pause)
    with rows.moment():
        updates, kept, forks = rows.updates(document.number), rows.kept(document.number), rows.forks(document.number)
    good: list[tuple[int, bytes]] = []
    for number, (seq, raw) in enumerate(updates):
        if not _is_sound(found, rows, raw, keys):
            return found
        good.append((seq, raw))
        if number % 8 == 7:
            pause()
    with trials.one() as trial:
        if not is_declared(trial, document):
            return found
        store, left = trial.store, LeftOut()
        assert isinstance(store, SqliteStore)
        number = store.document(document.doc_id, document.room_id, document.kind).number
        for fork in forks:
            store.trust.put_fork(number, fork)
        trial.staging.replay(document.doc_id, _paced(good, pause), left)
        if left.gaps:
            found.why = f"{len(left.gaps)} updates build on something that is not here"
        if left.gaps or left.refused:
            return found  # what another version has accepted can't be worked out here
        follows = store.rows().kept(number)
    for table, there in kept.items():
        if there != follows[table] and not (table == "deletions" and _in_the_log(there, follows[table], dict(good))):
            found.why = f"what is kept of it in {table} does not follow from its log"
            break
    return found


def _in_the_log(there: Sequence[tuple[Any, ...]], follows: Sequence[tuple[Any, ...]], log: Mapping[int, bytes]) -> bool:
    """Tell whether what is kept of deletions beyond what follows is in the log, as older versions kept all of that."""
    return set(follows) <= set(there) and all(
        seq in log
        and any(
            cut.client == client and cut.clock <= clock and clock + length <= cut.clock + cut.length
            for cut in decode_update(unpack(log[seq]).payload).deletions
        )
        for client, clock, length, _, seq in set(there) - set(follows)
    )


def is_named_right(document: DocumentRow) -> bool:
    """Tell whether a document's row says of its room and kind what its id says."""
    try:
        place = parse_doc_id(document.doc_id)
    except Refused:
        return False
    return (place.room_id, place.kind) == (document.room_id, document.kind)


def is_declared(engine: Engine, document: DocumentRow) -> bool:
    """Tell whether anything here says what a document holds: that of an extension that is gone is left alone."""
    place = parse_doc_id(document.doc_id)
    schema = engine.schema
    return bool(schema.roots(place.kind, place.ext_id)) and schema.datatype_at(place.kind, place.ext_id) is not None


def _inspect_long(rows: SqliteRows, found: Found, keys: Keys, pause: Callable[[], None]) -> Found:
    """Look at each update of a long document by itself, and whether clocks are missing between them."""
    clocks: dict[int, int] = {}
    for number, (seq, client, start, until) in enumerate(rows.numbers(found.document.number)):
        raw = rows.update(seq)
        if raw and not _is_sound(found, rows, raw, keys):
            return found
        if client is not None:
            if start != clocks.get(client, 0):
                found.why = "updates build on something that is not here"
                return found
            clocks[client] = until
        if number % 8 == 7:
            pause()
    return found


def _is_sound(found: Found, rows: SqliteRows, raw: bytes, keys: Keys) -> bool:
    """Tell whether an update of the log is what it has to be; note what is wrong, or what it names and is not here."""
    try:
        envelope = sound(raw, found.document.doc_id, keys)
    except (Refused, ValueError) as error:
        found.why = f"an update is damaged: {error}"
        return False
    if found.document.kind == "index":
        _note_missing(found, rows, envelope)
    return True


def _note_missing(found: Found, rows: SqliteRows, envelope: Envelope) -> None:
    for content_id in named_contents(decode_update(envelope.payload)):
        digest = bytes.fromhex(content_id.removeprefix("sha256:"))
        room_id = found.document.room_id
        if len(found.missing) < MAX_MISSING and not rows.has_content(room_id, digest):
            if rows.is_purged(room_id, content_id):
                continue
            found.missing[content_id] = envelope.raw


def _paced(updates: Sequence[tuple[int, bytes]], pause: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
    for number, update in enumerate(updates):
        yield update
        if number % 8 == 7:
            pause()
