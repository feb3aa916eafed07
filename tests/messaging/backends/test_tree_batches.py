"""A batch of updates changes a digest tree as the same updates do one by one, however many nodes they share."""

from __future__ import annotations

from random import Random

import pytest

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.ports.rows import LogRow, StagedUpdate

ROOM = "01a2212b-1000-7167-9394-011daa814786"


def _update(store: SqliteStore, number: int, clock: int, seq: int) -> StagedUpdate:
    row = store.document(f"ezagent/{ROOM}/content/{number}", ROOM, "content")
    head, before = bytes([clock]) * 16, bytes([clock - 1]) * 16
    log = LogRow(seq, 1, clock - 1, clock, b"", head, before if clock > 1 else None)
    return StagedUpdate(row, log, "", False)


def _kept(store: SqliteStore) -> list[object]:
    found: list[object] = []
    for table, key in (("leaves", "place"), ("nodes", "prefix")):
        found += store._db.execute(f"SELECT * FROM {table} ORDER BY {key}").fetchall()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_is_what_its_updates_are_one_by_one(seed: int) -> None:
    random = Random(seed)
    at_once, singly = SqliteStore(None), SqliteStore(None)
    clocks: dict[int, int] = {}
    seq = 0
    for size in (1, 40, 700, 3, 300):
        chosen = []
        for _ in range(size):
            number = random.randrange(1_200)
            clocks[number] = clocks.get(number, 0) + 1
            seq += 1
            chosen.append((number, clocks[number], seq))
        with at_once.transaction():
            at_once.tree.changed([_update(at_once, *one) for one in chosen])
        for one in chosen:
            with singly.transaction():
                singly.tree.changed([_update(singly, *one)])
        assert _kept(at_once) == _kept(singly)
    assert at_once.tree.root(ROOM).count == len(clocks)
