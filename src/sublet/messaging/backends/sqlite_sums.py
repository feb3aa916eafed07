"""Compares what rooms are compared by with the log it was made of, in slices, for whoever checks or mends it.

A commit keeps with each document a digest of all that its log says (``sqlite_tree``). So where rows of the log are gone
together with all that follows from them, the end of what somebody wrote say, or a whole document, the digest tells.

Rules: what is compared is read as of one moment, and nothing is kept between two steps but where to go on, so a room of
a million messages holds up nobody. Weak: where the digest is gone as well, only what other members have tells.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from sublet.messaging.backends.sqlite_tree import TOMBSTONE, TREE_KINDS, SqliteTree, place_of_deleting
from sublet.messaging.ports.rows import DocumentRow
from sublet.messaging.ports.tree_store import Leaf
from sublet.protocol.ezagent.digest_tree import FAN_OUT, NOTHING, Node, place_of, total
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import RoomId

STEP_ROWS: Final = 64
"""Documents, leaves or nodes that are compared as of one moment."""
_DETACHED: Final = "kind != 'purged'"
"""Which documents are not being erased just now."""
_KEPT: Final = "room_id NOT IN (SELECT room_id FROM forgotten WHERE due = 1)"
"""Which rooms are not being removed just now."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """What does not say the same as the log.

    Args:
        room_id: of which room; None where it is of none.
        doc_id: of which document; empty where that is gone, or where it is of the room as a whole.
        why: what is wrong, in words.
    """

    room_id: RoomId | None
    doc_id: str
    why: str


class SqliteSums:
    """See the module.

    Args:
        db: a connection; only ``mend`` writes, inside a transaction.
        tree: over the same connection.
    """

    def __init__(self, db: sqlite3.Connection, tree: SqliteTree) -> None:
        self._db = db
        self._tree = tree

    def wrong(self) -> Iterator[Wrong | None]:
        """Yield all that is wrong, and None after each step, where one may wait; for a connection that reads alone."""
        yield from self._documents()
        yield from self._leaves()
        yield from self._nodes()

    def newest(self, limit: int) -> Iterator[Wrong]:
        """Yield what is wrong with the documents that were made last and with all configs, up to ``limit`` of each."""
        for where in ("TRUE", "kind = 'config'"):
            rows = self._db.execute(
                f"SELECT number, doc_id, room_id, kind FROM documents WHERE {where} "  # noqa: S608 - constants
                f"AND {_DETACHED} AND (room_id IS NULL OR {_KEPT}) ORDER BY number DESC LIMIT ?",
                (limit,),
            ).fetchall()
            for row in rows:
                document = DocumentRow(*row)
                if why := self._why_leaf(document):
                    yield Wrong(document.room_id, document.doc_id, why)

    def why(self, document: DocumentRow) -> str:
        """Return what is missing of a document's log, in words; empty where that is nothing."""
        for start, written, until in self._db.execute(
            "SELECT min(start), sum(until - start), max(until) FROM log WHERE document = ? AND client IS NOT NULL "
            "GROUP BY client",
            (document.number,),
        ):
            if start != 0 or written != until:
                return "updates build on something that is not here"
        return self._why_leaf(document)

    def mend(self, room_id: RoomId) -> None:
        """Drop the leaves of a room whose rows are gone, and sum up its nodes again; inside a transaction.

        What is dropped here differs from what members have, so that it is asked for by its place.
        """
        for (tree,) in self._db.execute("SELECT number FROM trees WHERE room_id = ?", (room_id,)).fetchall():
            after = b""
            while leaves := self._leaves_after(tree, after):
                after = leaves[-1].place
                for leaf in leaves:
                    if self._is_of_nothing(leaf):
                        self._tree.remove_leaf(room_id, leaf.place)
            prefixes = self._db.execute("SELECT prefix FROM nodes WHERE tree = ?", (tree,)).fetchall()
            # The longest first, since those above are summed up from them.
            for (prefix,) in sorted(prefixes, key=lambda row: -len(row[0])):
                self._tree.put_node(tree, tuple(prefix), self._sum(tree, bytes(prefix)))

    def _documents(self) -> Iterator[Wrong | None]:
        after = -(2**63)
        while True:
            with self._moment():
                rows = self._db.execute(
                    "SELECT number, doc_id, room_id, kind FROM documents "  # noqa: S608 - a constant
                    f"WHERE number > ? AND {_DETACHED} AND (room_id IS NULL OR {_KEPT}) ORDER BY number LIMIT ?",
                    (after, STEP_ROWS),
                ).fetchall()
                self._tree.forget()
                found = [(one, self.why(one)) for one in (DocumentRow(*row) for row in rows)]
            yield from (Wrong(one.room_id, one.doc_id, why) for one, why in found if why)
            if len(rows) < STEP_ROWS:
                return
            after = rows[-1][0]
            yield None

    def _leaves(self) -> Iterator[Wrong | None]:
        """Yield rooms with a leaf of something that is not there."""
        for tree, room_id in self._trees():
            after = b""
            while True:
                with self._moment():
                    leaves = self._leaves_after(tree, after) if self._is_kept(room_id) else []
                    gone = sum(map(self._is_of_nothing, leaves))
                if gone:
                    yield Wrong(room_id, "", "documents that were written are not here")
                    break
                if len(leaves) < STEP_ROWS:
                    break
                after = leaves[-1].place
                yield None

    def _nodes(self) -> Iterator[Wrong | None]:
        """Yield rooms with a node that is not the sum of what is below it."""
        for tree, room_id in self._trees():
            after = b""
            while True:
                with self._moment():
                    rows = self._db.execute(
                        "SELECT prefix, count, clocks, digest FROM nodes WHERE tree = ? AND prefix >= ? "
                        "ORDER BY prefix LIMIT 2",
                        (tree, after),
                    ).fetchall()
                    wrong = (
                        bool(rows)
                        and self._is_kept(room_id)
                        and self._sum(tree, bytes(rows[0][0])) != _node(*rows[0][1:])
                    )
                if wrong:
                    yield Wrong(room_id, "", "what is kept of what it sums up to is not that")
                if wrong or len(rows) < 2:
                    break
                after = bytes(rows[1][0])
                yield None

    def _trees(self) -> list[tuple[int, RoomId]]:
        rows = self._db.execute(f"SELECT number, room_id FROM trees WHERE {_KEPT}")  # noqa: S608 - a constant
        return [(int(number), str(room_id)) for number, room_id in rows]

    def _is_kept(self, room_id: RoomId) -> bool:
        query = "SELECT 1 FROM forgotten WHERE due = 1 AND room_id = ?"
        return self._db.execute(query, (room_id,)).fetchone() is None

    def _why_leaf(self, document: DocumentRow) -> str:
        """Return how a document's leaf and its log differ."""
        if document.room_id is None or document.kind not in TREE_KINDS or self._tree.waits(document.number):
            return ""
        row = self._db.execute("SELECT number FROM trees WHERE room_id = ?", (document.room_id,)).fetchone()
        tree = int(row[0]) if row is not None else 0
        try:
            expected, leaf = self._tree.summed(document.number, document.doc_id), None
        except (TypeError, ValueError):
            return "a hash in its log is none"
        if tree:
            leaf = self._tree.leaf_at(tree, place_of(document.doc_id))
        there = leaf.node - Node(1) if leaf is not None else NOTHING
        same = there.digest == expected.digest and there.clocks >= expected.clocks
        if not same or (there != expected and document.kind != TOMBSTONE):
            lacks = there.clocks > expected.clocks
            return "the last of what was written is not here" if lacks else "what is kept of its digest is not that"
        deleting = self._db.execute(
            "SELECT l.envelope FROM log l WHERE l.document = ? AND l.client IS NULL "
            "AND l.seq IN (SELECT seq FROM deletions WHERE document = ?)",
            (document.number, document.number),
        )
        for (raw,) in deleting:
            with suppress(Refused, TypeError):  # damaged, as is found by whoever looks at the log
                if self._tree.leaf_at(tree, place_of_deleting(document.doc_id, raw)) is None:
                    return "what is kept of its digest is not that"
        return ""

    def _is_of_nothing(self, leaf: Leaf) -> bool:
        """Tell whether what a leaf stands for is gone."""
        if leaf.seq:
            row = self._db.execute("SELECT document FROM log WHERE seq = ?", (leaf.seq,)).fetchone()
            return row is None or row[0] != leaf.document
        return self._db.execute("SELECT 1 FROM documents WHERE number = ?", (leaf.document,)).fetchone() is None

    def _leaves_after(self, tree: int, after: bytes) -> list[Leaf]:
        rows = self._db.execute(
            "SELECT place, document, seq FROM leaves WHERE tree = ? AND place > ? ORDER BY place LIMIT ?",
            (tree, after, STEP_ROWS),
        )
        return [Leaf(bytes(place), document, seq, NOTHING) for place, document, seq in rows]

    def _sum(self, tree: int, prefix: bytes) -> Node:
        return total(self._tree.node_at(tree, (*prefix, digit)) for digit in range(FAN_OUT))

    @contextmanager
    def _moment(self) -> Iterator[None]:
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")


def _node(count: int, clocks: int, digest: bytes) -> Node:
    return Node(count, clocks, int.from_bytes(digest, "big"))
