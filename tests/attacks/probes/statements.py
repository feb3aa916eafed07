"""Probes of statements of the messages' database that could look at far more rows than they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from attacks.probe import CostProbe
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.ports.rows import Batch, DeletionRow, DocumentRow, EntryRow, LogRow, StagedUpdate
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.update import Deletion

ROOM = "0190a7c2-0000-7000-8000-000000000001"
WRITER = "@bob:example"
CLIENT = 7
SLICE = 1_000
HASH = f"sha256:{'0' * 64}"

T = TypeVar("T")


def _store(write: Callable[[SqliteStore], T]) -> tuple[SqliteStore, T]:
    store = SqliteStore(None)
    with store.transaction():
        return store, write(store)


def _index(store: SqliteStore) -> DocumentRow:
    return store.document(doc_id("index", room_id=ROOM, shard_id="2026-11"), ROOM, "index")


def _hidden(number: int) -> tuple[SqliteStore, list[tuple[int, tuple[int, int]]]]:
    """Return elements of somebody who is no member yet, none of which is shown."""

    def write(store: SqliteStore) -> list[tuple[int, tuple[int, int]]]:
        row = _index(store)
        store.write(
            Batch(
                [
                    StagedUpdate(
                        row,
                        LogRow(at + 1, CLIENT, at, at + 1, b"x", bytes(16)),
                        WRITER,
                        at == 0,
                        [EntryRow(CLIENT, at, 1, None, None, f"e{at}", WRITER, at + 1, shown=False)],
                    )
                    for at in range(number)
                ]
            )
        )
        return [(row.number, (CLIENT, at)) for at in range(number)]

    return _store(write)


def _show(given: tuple[SqliteStore, list[tuple[int, tuple[int, int]]]]) -> None:
    store, items = given
    with store.transaction():
        store.mark_shown(items)
    assert store.hidden_entries([WRITER]) == []


def _heads(given: tuple[SqliteStore, list[tuple[int, tuple[int, int]]]]) -> None:
    store, items = given
    assert all(store.trust.head(number, client, clock + 1) for number, (client, clock) in items)


def _deleting(number: int) -> tuple[SqliteStore, DocumentRow]:
    """Return a document with as many envelopes that only delete, each something else."""

    def write(store: SqliteStore) -> DocumentRow:
        row = _index(store)
        store.write(
            Batch(
                [
                    StagedUpdate(
                        row,
                        LogRow(at + 1, None, 0, 0, b"x", None),
                        WRITER,
                        first=False,
                        deletions=[DeletionRow(Deletion(CLIENT, 2 * at, 1), WRITER)],
                    )
                    for at in range(number)
                ]
            )
        )
        return row

    # No tree has them, as they are no envelopes: it is taken for one that an older version has written.
    store = SqliteStore(None)
    store.tree.waits = lambda document: True  # type: ignore[method-assign]
    with store.transaction():
        return store, write(store)


def _slices(given: tuple[SqliteStore, DocumentRow]) -> None:
    store, row = given
    upto = 0
    while rows := store.deleting_after(row.number, upto, SLICE):
        upto = rows[-1][0]


def _cuts(given: tuple[SqliteStore, DocumentRow]) -> None:
    store, row = given
    for at in range(store.last_seq()):
        assert not store.trust.is_deleted(row.number, WRITER, Deletion(CLIENT, 2 * at + 1, 1), 1 << 40, 256)


def _compared(given: tuple[SqliteStore, DocumentRow]) -> None:
    store, row = given
    store.tree.waits = lambda document: False  # type: ignore[method-assign]
    assert store.rows().sums().why(row) == ""


def _tombstones(number: int) -> tuple[SqliteStore, list[str]]:
    """Return a room of as many tombstones, each begun by somebody else."""

    def write(store: SqliteStore) -> list[str]:
        writers = [f"@w{at}:example" for at in range(number)]
        updates = []
        for at, writer in enumerate(writers):
            row = store.document(f"ezagent/{ROOM}/ext/purge/{at}", ROOM, "purge")
            updates.append(StagedUpdate(row, LogRow(at + 1, CLIENT, 0, 1, b"x", bytes(16)), writer, first=True))
        store.write(Batch(updates))
        return writers

    return _store(write)


def _contents(given: tuple[SqliteStore, list[str]]) -> None:
    store, writers = given
    for _ in writers:
        assert store.content(ROOM, HASH) is None
        assert store.purges.content_documents(ROOM, HASH) == []


def _written(given: tuple[SqliteStore, list[str]]) -> None:
    store, writers = given
    assert len(store.purges.written_by(ROOM, writers)) == len(writers)


PROBES = (
    CostProbe(
        name="database: what a stranger wrote is shown",
        covers=["messaging.backends.sqlite_store:SqliteStore.mark_shown"],
        make=_hidden,
        run=_show,
        size=1_000,
    ),
    CostProbe(
        name="database: hashes of what was written that are asked for one by one",
        covers=["messaging.backends.sqlite_trust:SqliteTrust.head"],
        make=_hidden,
        run=_heads,
        size=1_000,
    ),
    CostProbe(
        name="database: updates that only delete, in slices",
        covers=["messaging.backends.sqlite_store:SqliteStore.deleting_after"],
        make=_deleting,
        run=_slices,
        size=4 * SLICE,
    ),
    CostProbe(
        name="database: deletions of what was written, one by one",
        covers=["messaging.backends.sqlite_trust:SqliteTrust.is_deleted"],
        make=_deleting,
        run=_cuts,
        size=1_000,
    ),
    CostProbe(
        name="database: what only deletes is compared with the digests",
        covers=["messaging.backends.sqlite_sums:SqliteSums.why"],
        make=_deleting,
        run=_compared,
        size=1_000,
    ),
    CostProbe(
        name="database: contents in a room of many tombstones",
        covers=[
            "messaging.backends.sqlite_store:SqliteStore.content",
            "messaging.backends.sqlite_purges:SqlitePurges.content_documents",
        ],
        make=_tombstones,
        run=_contents,
        size=1_000,
    ),
    CostProbe(
        name="database: tombstones of many writers",
        covers=["messaging.backends.sqlite_purges:SqlitePurges.written_by"],
        make=_tombstones,
        run=_written,
        size=1_000,
    ),
)
