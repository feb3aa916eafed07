"""Words of messages on SQLite's FTS5.

Rules: a query is a list of words in quotes, so no syntax of FTS5 comes from elsewhere; how much work one causes is
bounded by a count of steps. What is forgotten is no longer found at once, and is overwritten by ``tidy`` little by
little, since FTS5 keeps the words of deleted rows until it merges. Weak: languages that are written without spaces are
found by the beginning of a run of signs alone.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from sublet.messaging.ports.search_store import UnreadRefs, found_at
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import RefId, RoomId, ref_ms

MAX_SEARCHED_CHARS: Final = 16_384
"""Of a message's text; what stands further down is not found."""
STEPS_AT_ONCE: Final = 10_000
MAX_STEPS: Final = 500 * STEPS_AT_ONCE
"""Steps of SQLite that one search takes: about half a second."""
TIDY_PAGES: Final = 200
MIN_PREFIX_CHARS: Final = 2
"""A word of fewer letters is found as it is, and not as the beginning of others."""
_UNTIDY: Final = "search.untidy"
_IN_ROOMS: Final = "room_id IN (SELECT value FROM json_each(?))"


class SqliteSearch:
    """See ``ports.search_store.SearchStore``.

    Args:
        db: the store's connection.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def doubt(self, ref_id: RefId) -> None:
        self.drop(ref_id)
        # Only what is here: a decision about messages may name any id.
        self._db.execute(
            "INSERT INTO searched_again (document, ref_id) SELECT document, entry_id FROM entries "
            "WHERE entry_id = ? LIMIT 1",
            (ref_id,),
        )

    def due(self, rooms: Sequence[RoomId], limit: int) -> list[tuple[RoomId, int, RefId]]:
        rows = self._db.execute(
            "SELECT d.room_id, d.number, a.ref_id FROM searched_again a JOIN documents d ON d.number = a.document "  # noqa: S608
            f"WHERE d.kind = 'index' AND d.{_IN_ROOMS} ORDER BY a.number LIMIT ?",
            (json.dumps(list(rooms)), limit),
        )
        return [(str(room), int(number), str(ref_id)) for room, number, ref_id in rows]

    def unread(self, rooms: Sequence[RoomId], limit: int) -> list[UnreadRefs]:
        documents = self._db.execute(
            "SELECT d.number, d.room_id, coalesce(u.seq, 0), coalesce(u.clock, 0) FROM documents d "  # noqa: S608
            f"LEFT JOIN searched_until u ON u.document = d.number WHERE d.kind = 'index' AND d.{_IN_ROOMS}",
            (json.dumps(list(rooms)),),
        ).fetchall()
        found: list[UnreadRefs] = []
        for number, room_id, seq, clock in documents:
            if limit <= 0:
                break
            rows = self._db.execute(
                "SELECT seq, clock, entry_id FROM entries WHERE document = ? AND (seq, clock) > (?, ?) "
                "ORDER BY seq, clock LIMIT ?",
                (number, seq, clock, limit),
            ).fetchall()
            if rows:
                limit -= len(rows)
                refs = tuple(str(row[2]) for row in rows)
                found.append(UnreadRefs(int(number), str(room_id), refs, (int(rows[-1][0]), int(rows[-1][1]))))
        return found

    def put(self, document: int, ref_id: RefId, body: str, at: str) -> None:
        self.drop(ref_id)
        cursor = self._db.execute(
            "INSERT INTO searched (document, ref_id, at) VALUES (?, ?, ?)", (document, ref_id, at)
        )
        self._db.execute("INSERT INTO words (rowid, body) VALUES (?, ?)", (cursor.lastrowid, _storable(body)))

    def drop(self, ref_id: RefId) -> None:
        self._db.execute("DELETE FROM searched_again WHERE ref_id = ?", (ref_id,))
        row = self._db.execute("SELECT number FROM searched WHERE ref_id = ?", (ref_id,)).fetchone()
        if row is not None:
            self._forget([row])

    def drop_some_of(self, document: int, limit: int) -> int:
        """Forget messages of a document that is removed, inside a transaction; return how many they were."""
        rows = self._db.execute("SELECT number FROM searched WHERE document = ? LIMIT ?", (document, limit)).fetchall()
        if rows:
            self._forget(rows)
        else:
            self._db.execute("DELETE FROM searched_again WHERE document = ?", (document,))
            self._db.execute("DELETE FROM searched_until WHERE document = ?", (document,))
        return len(rows)

    def look_again(self, document: int) -> None:
        """Look at a document anew, whose log was rewound; inside a transaction."""
        self._db.execute("DELETE FROM searched_until WHERE document = ?", (document,))

    def looked_at(self, done: UnreadRefs) -> None:
        self._db.execute("INSERT OR REPLACE INTO searched_until VALUES (?, ?, ?)", (done.document, *done.until))

    def find(
        self, words: Sequence[str], rooms: Sequence[RoomId], limit: int, before: str | None
    ) -> list[tuple[RoomId, RefId]]:
        left = MAX_STEPS // STEPS_AT_ONCE
        below = self._at(before) if before is not None else None

        def step() -> int:
            nonlocal left
            left -= 1
            return left < 0

        self._db.set_progress_handler(step, STEPS_AT_ONCE)
        try:
            rows = self._db.execute(
                "SELECT d.room_id, s.ref_id FROM words JOIN searched s ON s.number = words.rowid "  # noqa: S608
                f"JOIN documents d ON d.number = s.document WHERE words MATCH ? AND d.{_IN_ROOMS} "
                "AND (? IS NULL OR s.at < ?) ORDER BY s.at DESC LIMIT ?",
                (_query(words), json.dumps(list(rooms)), below, below, limit),
            ).fetchall()
        except sqlite3.OperationalError:
            if left >= 0:
                raise
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, "too many messages hold these words", "Give more words, or longer ones."
            ) from None
        finally:
            self._db.set_progress_handler(None, 0)
        return [(str(room), str(ref_id)) for room, ref_id in rows]

    def _at(self, ref_id: RefId) -> str:
        """Return where a message stands among those that are found; by its own time where it is found no more."""
        plain = ref_id[-26:]
        row = self._db.execute(
            "SELECT at FROM searched WHERE ref_id IN (?, ?) LIMIT 1", (plain, f"ulid:{plain}")
        ).fetchone()
        return str(row[0]) if row is not None else found_at(ref_id, ref_ms(ref_id))

    def tidy(self) -> bool:
        if self._db.execute("SELECT 1 FROM settings WHERE name = ?", (_UNTIDY,)).fetchone() is None:
            return False
        before = self._db.total_changes
        # A negative number has all segments merged into one, a step at a time.
        self._db.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (-TIDY_PAGES,))
        if self._db.total_changes - before >= 2:
            return True
        self._db.execute("DELETE FROM settings WHERE name = ?", (_UNTIDY,))
        return False

    def _forget(self, rows: list[tuple[int]]) -> None:
        self._db.executemany("DELETE FROM words WHERE rowid = ?", rows)
        self._db.executemany("DELETE FROM searched WHERE number = ?", rows)
        self._db.execute("INSERT OR IGNORE INTO settings VALUES (?, 'true')", (_UNTIDY,))


def _query(words: Sequence[str]) -> str:
    quoted = ('"' + word.replace('"', '""') + '"' for word in words)
    pairs = zip(words, quoted, strict=True)
    return " ".join(text + ("*" if len(word) >= MIN_PREFIX_CHARS else "") for word, text in pairs)


def _storable(body: str) -> str:
    return body[:MAX_SEARCHED_CHARS].encode("utf-8", "replace").decode()
