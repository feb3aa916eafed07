"""The digest trees of rooms on SQLite, changed in the transaction in which the log changes.

A leaf is a row. A node is a row only where there are more than ``MAX_LISTED`` leaves below it; else it is summed up
when it is asked for. So a message in a small room changes one row, in a room of a million documents five.

Rules: documents that an older version has written are in no tree until ``build_some`` takes them, in the order of
their numbers; what is written to one of them meanwhile counts when it is taken.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from sublet.messaging.backends.purged_clocks import add_purged_clocks, purged_clocks
from sublet.messaging.ports.rows import DocumentRow, StagedUpdate
from sublet.messaging.ports.tree_store import Leaf
from sublet.protocol.ezagent.digest_tree import (
    CLOCKS_OF_FORK,
    FAN_OUT,
    FORKS_OF_OUTCAST,
    MAX_DEPTH,
    NOTHING,
    Node,
    Prefix,
    bounds,
    digit_at,
    digits,
    of_deletion,
    of_fork,
    of_head,
    of_outcast,
    place_of,
    place_of_deletion,
    total,
)
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.reconciliation import MAX_LISTED

TOMBSTONE: Final = "purge"
"""Documents whose leaves count what was written into others, which are gone."""
TREE_KINDS: Final = frozenset({"config", "index", "content", "acl", "blob_ref", "ext", "purge"})
"""Documents that all members of a room share."""
BUILT_AT_ONCE: Final = 200
"""Documents of an older version that are taken into the trees with one transaction."""
_NEW: Final = Node(1)
_BUILT: Final = "trees_built_until"
_UNBUILT: Final = "trees_unbuilt_until"


class SqliteTree:
    """See ``ports.tree_store.TreeStore``.

    Args:
        db: the store's connection.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._numbers: dict[RoomId, int] = {}
        self._built = self._unbuilt = 0
        self._read_built()

    @property
    def is_built(self) -> bool:
        return self._built >= self._unbuilt

    def build_some(self) -> bool:
        if self.is_built:
            return False
        rows = self._db.execute(
            "SELECT number, doc_id, room_id, kind FROM documents "
            "WHERE number > ? AND number <= ? ORDER BY number LIMIT ?",
            (self._built, self._unbuilt, BUILT_AT_ONCE),
        ).fetchall()
        until = rows[-1][0] if len(rows) == BUILT_AT_ONCE else self._unbuilt
        self._db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (_BUILT, str(until)))
        self._built = until
        for number, name, room_id, kind in rows:
            if room_id is not None and kind in TREE_KINDS:
                self._deletions(number, name, room_id)
                self._sum_up(number, name, room_id)
        return not self.is_built

    def forget(self) -> None:
        """Go back to what is durable, after a transaction that failed."""
        self._numbers.clear()
        self._read_built()

    def changed(self, updates: Sequence[StagedUpdate]) -> None:
        """Take what is written of the log; inside the transaction."""
        changes: dict[tuple[RoomId, str], tuple[int, Node]] = {}
        for update in updates:
            row, log = update.document, update.log
            room_id = row.room_id
            if room_id is None or row.kind not in TREE_KINDS or self.waits(row.number):
                continue
            if log.client is None or log.head is None:
                if not update.deletions:
                    continue  # it says nothing, and nobody else takes it
                place = place_of_deleting(row.doc_id, log.envelope)
                self._put(self._number(room_id), Leaf(place, row.number, log.seq, of_deletion(place)))
                continue
            key = (room_id, row.doc_id)
            change = changes.get(key, (row.number, NOTHING))[1]
            change += of_head(row.doc_id, log.client, log.end, log.head)
            if log.before is not None:
                change -= of_head(row.doc_id, log.client, log.start, log.before)
            changes[key] = row.number, change
        by_room: dict[RoomId, list[tuple[bytes, int, Node]]] = {}
        for (room_id, name), (number, change) in changes.items():
            by_room.setdefault(room_id, []).append((place_of(name), number, change))
        for room_id, of_room in by_room.items():
            self._add(self._number(room_id), of_room)

    def taken_back(self, document: int, gone: Iterable[bytes]) -> None:
        """Sum up a document anew of which some of the log is gone, or forks have become known; inside the transaction.

        Args:
            document: its number.
            gone: envelopes that only deleted.
        """
        row = self._db.execute("SELECT doc_id, room_id, kind FROM documents WHERE number = ?", (document,)).fetchone()
        if row is None or row[1] is None or row[2] not in TREE_KINDS or self.waits(document):
            return
        name, room_id = str(row[0]), str(row[1])
        for raw in gone:
            with suppress(Refused):  # damaged, and so it was no leaf, or is found to be none when it is asked for
                self._remove(self._number(room_id), place_of_deleting(name, raw))
        self._sum_up(document, name, room_id)

    def drop(self, document: int) -> None:
        """Remove the leaf of a document whose row is removed; inside the transaction."""
        row = self._db.execute("SELECT doc_id, room_id FROM documents WHERE number = ?", (document,)).fetchone()
        if row is not None and row[1] is not None:
            self._remove(self._number(str(row[1])), place_of(str(row[0])))

    def purge(self, document: int, tombstone: str) -> None:
        """Remove all leaves of a document that is gone; the leaf of its tombstone says how much was written there.

        So a room's root never says less than before, and nobody takes that for somebody who has gone back.
        """
        row = self._db.execute("SELECT doc_id, room_id FROM documents WHERE number = ?", (document,)).fetchone()
        if row is None or row[1] is None:
            return
        name, tree, clocks = str(row[0]), self._number(str(row[1])), 0
        places = {place_of(name)}
        for (raw,) in self._db.execute("SELECT envelope FROM log WHERE document = ? AND client IS NULL", (document,)):
            with suppress(Refused):  # damaged, and so it was no leaf
                places.add(place_of_deleting(name, bytes(raw)))
        for place in places:
            leaf = self.leaf_at(tree, place)
            clocks += leaf.node.clocks if leaf is not None else 0
            self._remove(tree, place)
        above = self.leaf_at(tree, place_of(tombstone))
        if above is not None and clocks:
            self._add(tree, [(above.place, above.document, Node(0, clocks, 0))])
            add_purged_clocks(self._db, str(row[1]), tombstone, clocks)

    def root(self, room_id: RoomId) -> Node:
        return self.node_at(self._number(room_id), ())

    def children(self, room_id: RoomId, prefix: Prefix) -> list[Node]:
        tree = self._number(room_id)
        if self._kept(tree, prefix) is not None:
            return [self.node_at(tree, (*prefix, digit)) for digit in range(FAN_OUT)]
        found, at = [NOTHING] * FAN_OUT, len(prefix)
        for leaf in self._below(tree, prefix, MAX_LISTED):
            found[digits(leaf.place)[at]] += leaf.node
        return found

    def leaves(self, room_id: RoomId, prefix: Prefix) -> list[Leaf] | None:
        found = self._below(self._number(room_id), prefix, MAX_LISTED + 1)
        return found if len(found) <= MAX_LISTED else None

    def leaf(self, room_id: RoomId, place: bytes) -> Leaf | None:
        return self.leaf_at(self._number(room_id), place)

    def counted(self, document: DocumentRow) -> int:
        if document.room_id is None or document.kind not in TREE_KINDS - {TOMBSTONE}:
            return 0
        leaf = self.leaf(document.room_id, place_of(document.doc_id))
        return leaf.node.clocks % CLOCKS_OF_FORK if leaf is not None else 0

    def due(self, room_id: RoomId, limit: int) -> list[bytes]:
        rows = self._db.execute("SELECT place FROM due WHERE room_id = ? LIMIT ?", (room_id, limit))
        return [bytes(place) for (place,) in rows]

    def put_due(self, room_id: RoomId, places: Sequence[bytes]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO due VALUES (?, ?)", [(room_id, place) for place in places])

    def drop_due(self, room_id: RoomId, places: Sequence[bytes]) -> None:
        self._db.executemany("DELETE FROM due WHERE room_id = ? AND place = ?", [(room_id, place) for place in places])

    def said(self, room_id: RoomId) -> dict[EntityId, tuple[int, bytes]]:
        rows = self._db.execute("SELECT entity_id, at_ms, raw FROM roots WHERE room_id = ?", (room_id,))
        return {entity: (at_ms, bytes(raw)) for entity, at_ms, raw in rows}

    def put_said(self, room_id: RoomId, entity: EntityId, at_ms: int, raw: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO roots VALUES (?, ?, ?, ?)", (room_id, entity, at_ms, raw))

    def remove_leaf(self, room_id: RoomId, place: bytes) -> None:
        """Remove the leaf of what is not here, so that it differs from members' who have it; inside a transaction."""
        self._remove(self._number(room_id), place)

    def remove_some(self, room_id: RoomId, limit: int) -> bool:
        """Remove some of the tree of a room that is forgotten; tell whether there was anything."""
        tree = self._number(room_id)
        removed: int = sum(
            self._db.execute(
                f"DELETE FROM {table} WHERE tree = ? AND {key} IN (SELECT {key} FROM {table} WHERE tree = ? LIMIT ?)",  # noqa: S608
                (tree, tree, limit),
            ).rowcount
            for table, key in (("leaves", "place"), ("nodes", "prefix"))
        )
        if not removed:
            self._db.execute("DELETE FROM trees WHERE number = ?", (tree,))
            self._numbers.pop(room_id, None)
        return removed > 0

    def _read_built(self) -> None:
        rows = dict(self._db.execute("SELECT name, value FROM settings WHERE name IN (?, ?)", (_BUILT, _UNBUILT)))
        self._built, self._unbuilt = int(rows.get(_BUILT, 0)), int(rows.get(_UNBUILT, 0))

    def waits(self, document: int) -> bool:
        """Tell whether a document is in no tree yet, and is taken as a whole later."""
        return self._built < document <= self._unbuilt

    def _number(self, room_id: RoomId) -> int:
        """Return the number of a room's tree; 0, under which nothing is, where it has none and nothing is written."""
        found = self._numbers.get(room_id)
        if found is None:
            row = self._db.execute("SELECT number FROM trees WHERE room_id = ?", (room_id,)).fetchone()
            if row is None and not self._db.in_transaction:
                return 0
            if row is None:
                row = (self._db.execute("INSERT INTO trees (room_id) VALUES (?)", (room_id,)).lastrowid,)
            found = self._numbers[room_id] = int(row[0])
        return found

    def summed(self, document: int, name: str) -> Node:
        """Return what the log of a document says, which with the leaf itself is the leaf."""
        found = NOTHING
        for client, clock, head in self._db.execute(
            "SELECT l.client, l.until, l.head FROM clients c JOIN log l ON l.document = c.document "
            "AND l.client = c.client AND l.until = "
            "(SELECT max(until) FROM log m WHERE m.document = c.document AND m.client = c.client) "
            "WHERE c.document = ?",
            (document,),
        ):
            found += of_head(name, client, clock, bytes(head))
        forks = self._db.execute("SELECT client, clock, signer FROM forks WHERE document = ?", (document,)).fetchall()
        often = Counter(signer for _, _, signer in forks)
        outcasts = {signer for signer, count in often.items() if count >= FORKS_OF_OUTCAST}
        for client, clock, signer in forks:
            if signer not in outcasts:
                found += of_fork(name, client, clock)
        for signer in outcasts:
            found += of_outcast(name, signer)
        return found + purged_clocks(self._db, name)

    def _sum_up(self, document: int, name: str, room_id: RoomId) -> None:
        """Make the leaf of a document from all that the log says."""
        found = self.summed(document, name)
        tree, place = self._number(room_id), place_of(name)
        if found == NOTHING:
            self._remove(tree, place)
        else:
            self._put(tree, Leaf(place, document, 0, found + Node(1)))

    def _deletions(self, document: int, name: str, room_id: RoomId) -> None:
        """Make the leaves of what only deletes in a document that an older version has written."""
        tree = self._number(room_id)
        deleting = {seq for (seq,) in self._db.execute("SELECT seq FROM deletions WHERE document = ?", (document,))}
        for seq, raw in self._db.execute(
            "SELECT seq, envelope FROM log WHERE document = ? AND client IS NULL", (document,)
        ).fetchall():
            if seq not in deleting:
                continue
            place = place_of_deleting(name, bytes(raw))
            self._put(tree, Leaf(place, document, seq, of_deletion(place)))

    def leaf_at(self, tree: int, place: bytes) -> Leaf | None:
        """Return the leaf at a place of a tree."""
        row = self._db.execute(
            "SELECT document, seq, clocks, digest FROM leaves WHERE tree = ? AND place = ?", (tree, place)
        ).fetchone()
        if row is None:
            return None
        return Leaf(place, row[0], row[1], Node(1, row[2], int.from_bytes(row[3], "big")))

    def _below(self, tree: int, prefix: Prefix, limit: int) -> list[Leaf]:
        rows = self._db.execute(
            "SELECT place, document, seq, clocks, digest FROM leaves "
            "WHERE tree = ? AND place BETWEEN ? AND ? ORDER BY place LIMIT ?",
            (tree, *bounds(prefix), limit),
        )
        return [
            Leaf(bytes(place), document, seq, Node(1, clocks, int.from_bytes(digest, "big")))
            for place, document, seq, clocks, digest in rows
        ]

    def node_at(self, tree: int, prefix: Prefix) -> Node:
        """Return a node of a tree, as it is kept or summed up."""
        kept = self._kept(tree, prefix)
        return kept if kept is not None else total(leaf.node for leaf in self._below(tree, prefix, MAX_LISTED))

    def _kept(self, tree: int, prefix: Prefix) -> Node | None:
        row = self._db.execute(
            "SELECT count, clocks, digest FROM nodes WHERE tree = ? AND prefix = ?", (tree, bytes(prefix))
        ).fetchone()
        return Node(row[0], row[1], int.from_bytes(row[2], "big")) if row is not None else None

    def _put(self, tree: int, leaf: Leaf) -> None:
        """Put a leaf in place of what was there."""
        before = self.leaf_at(tree, leaf.place)
        self._write(tree, [leaf])
        change = leaf.node - before.node if before is not None else leaf.node
        self._change_above(tree, (), [(leaf.place, change)])

    def _add(self, tree: int, changes: Iterable[tuple[bytes, int, Node]]) -> None:
        """Change the leaves of documents, at other places each, which are made where they are new."""
        leaves: list[Leaf] = []
        above: list[tuple[bytes, Node]] = []
        for place, document, change in changes:
            before = self.leaf_at(tree, place)
            if before is None:
                change += _NEW
            leaves.append(Leaf(place, document, 0, change if before is None else before.node + change))
            above.append((place, change))
        self._write(tree, leaves)
        self._change_above(tree, (), above)

    def _write(self, tree: int, leaves: Iterable[Leaf]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO leaves VALUES (?, ?, ?, ?, ?, ?)",
            [(tree, leaf.place, leaf.document, leaf.seq, leaf.node.clocks, leaf.node.raw) for leaf in leaves],
        )

    def _remove(self, tree: int, place: bytes) -> None:
        before = self.leaf_at(tree, place)
        if before is not None:
            self._db.execute("DELETE FROM leaves WHERE tree = ? AND place = ?", (tree, place))
            self._change_above(tree, (), [(place, NOTHING - before.node)])

    def _change_above(self, tree: int, prefix: Prefix, changes: Sequence[tuple[bytes, Node]]) -> None:
        """Change the nodes above leaves that are kept, each once, and keep those with too many leaves below now.

        Args:
            tree: the room's.
            prefix: where to begin; what is above it is done.
            changes: of leaves below it, which are written already.
        """
        depth = len(prefix)
        kept, change = self._kept(tree, prefix), total(change for _, change in changes)
        if kept is not None:
            self.put_node(tree, prefix, kept + change)
        else:
            # As many as fit were there before, so no more than these and the new ones are here now.
            found = self._below(tree, prefix, MAX_LISTED + len(changes)) if change.count > 0 else []
            if len(found) <= MAX_LISTED:
                return
            self.put_node(tree, prefix, total(leaf.node for leaf in found))
        if depth == MAX_DEPTH:
            return
        if len(changes) == 1:
            self._change_above(tree, (*prefix, digit_at(changes[0][0], depth)), changes)
            return
        by_digit: dict[int, list[tuple[bytes, Node]]] = {}
        for one in changes:
            by_digit.setdefault(digit_at(one[0], depth), []).append(one)
        for digit, below in by_digit.items():
            self._change_above(tree, (*prefix, digit), below)

    def put_node(self, tree: int, prefix: Prefix, node: Node) -> None:
        """Keep a node; inside a transaction."""
        self._db.execute(
            "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?)",
            (tree, bytes(prefix), node.count, node.clocks, node.raw),
        )


def place_of_deleting(name: str, raw: bytes) -> bytes:
    """Return where the leaf of an envelope stands that only deletes."""
    envelope = unpack(raw)
    return place_of_deletion(name, envelope.signer, envelope.payload)
