"""Version 11 of the messages: each has a rank, by which it stands in its room, and so have the lists made of them.

It is what ``protocol/ezagent/order.py`` said when this version came: the time in the message's id, shifted by 14 bits,
or one more than the rank of the message on its left. It is written down here once more, since a migration stays as it
is when that changes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from sublet.migrations.schema import Tables

_LAST_MS = 32_503_679_999_999
_DIGITS = {digit: number for number, digit in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}
_Place = Callable[[str, int], str]
"""Returns where a message stands in an index, by its id and its rank."""


def rank_messages(tables: Tables) -> None:
    """Add the ranks, and order by them what stood by times that members wrote."""
    tables.execute("ALTER TABLE entries ADD COLUMN rank INTEGER NOT NULL DEFAULT 0")
    tables.execute(
        "CREATE TABLE afters (document INTEGER NOT NULL, client INTEGER NOT NULL, clock INTEGER NOT NULL, "
        "after_doc TEXT NOT NULL, after_client INTEGER NOT NULL, after_clock INTEGER NOT NULL, "
        "PRIMARY KEY (document, client, clock)) WITHOUT ROWID"
    )
    tables.execute("CREATE INDEX afters_of ON afters (after_doc)")
    for (document,) in tables.execute("SELECT number FROM documents WHERE kind = 'index'").fetchall():
        tables.executemany(
            "UPDATE entries SET rank = ? WHERE document = ? AND seq = ? AND clock = ?", _ranks(tables, document)
        )
    tables.execute("CREATE INDEX entries_by_rank ON entries (document, rank)")
    now_ms = time.time_ns() // 1_000_000
    _rewrite(tables, "reply_chain", lambda ref_id, rank: f"{rank:019}/{ref_id}")
    _rewrite(tables, "thread_view", lambda ref_id, rank: f"{rank:019}/{ref_id}")
    _rewrite(tables, "channel_refs", lambda ref_id, rank: f"{min(rank >> 14, now_ms):015}/{rank:019}/{ref_id}")
    for key, place in tables.execute("SELECT key, rank FROM index_entries WHERE name = 'channel_refs'").fetchall():
        named = ("channel_places", key, place.rpartition("/")[2], json.dumps({"place": place}))
        tables.execute("INSERT OR REPLACE INTO index_entries VALUES (?, ?, ?, ?)", named)
    for number, ref_id in tables.execute("SELECT number, ref_id FROM searched").fetchall():
        at_ms = min(_rank(tables, ref_id) >> 14, now_ms)
        tables.execute("UPDATE searched SET at = ? WHERE number = ?", (f"{at_ms:015}/{ref_id[-26:]}", number))


def _ranks(tables: Tables, document: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the rank of each message of a shard, in the order in which they were accepted, with its key."""
    ranks: dict[tuple[int, int], int] = {}
    own: dict[int, int] = {}
    rows = tables.execute(
        "SELECT seq, client, clock, origin_client, origin_clock, entry_id FROM entries WHERE document = ? "
        "ORDER BY seq, clock",
        (document,),
    ).fetchall()
    for seq, client, clock, origin_client, origin_clock, entry_id in rows:
        left = None
        if origin_client is not None:
            left = ranks.get((origin_client, origin_clock), own.get(client))
        rank = max(_told_ms(entry_id) << 14, left + 1 if left is not None else 0)
        ranks[client, clock] = own[client] = rank
        yield rank, document, seq, clock


def _rewrite(tables: Tables, index: str, place: _Place) -> None:
    """Write the entries of an index anew, each under the place of its message."""
    found = tables.execute("SELECT key, rank, value FROM index_entries WHERE name = ?", (index,)).fetchall()
    tables.execute("DELETE FROM index_entries WHERE name = ?", (index,))
    for key, old, value in found:
        ref_id = old.rpartition("/")[2]
        tables.execute(
            "INSERT OR REPLACE INTO index_entries VALUES (?, ?, ?, ?)",
            (index, key, place(ref_id, _rank(tables, ref_id)), value),
        )


def _rank(tables: Tables, ref_id: str) -> int:
    row = tables.execute(
        "SELECT e.rank FROM entries e JOIN documents d ON d.number = e.document WHERE e.entry_id = ? "
        "AND d.kind = 'index' ORDER BY d.doc_id, e.client, e.clock LIMIT 1",
        (ref_id,),
    ).fetchone()
    return int(row[0]) if row is not None else _told_ms(ref_id) << 14


def _told_ms(ref_id: str) -> int:
    """Return the time in a message's id, Unix milliseconds; 0 where it has none."""
    number = 0
    for digit in ref_id[-26:][:10]:
        if digit not in _DIGITS:
            return 0
        number = number << 5 | _DIGITS[digit]
    return min(number, _LAST_MS)
