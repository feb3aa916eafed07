"""The digest trees of the database: what the log says, in whatever order it came."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sublet.messaging.backends import sqlite_tree
from sublet.messaging.backends.schema import SCHEMA
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.reconciling.logs import RoomTree
from sublet.protocol.ezagent.digest_tree import FAN_OUT, Node, Prefix, total
from sublet.protocol.ezagent.reconciliation import MAX_LISTED
from support.reconciled import reconcile
from support.rooms import Peer, peers, shared_room

ALL = (*BUILT_INS, *EXTENSIONS)


def anew(store: SqliteStore) -> None:
    """Make all trees as if an older version had written everything."""
    with store.transaction():
        for table in ("leaves", "nodes", "trees"):
            store._db.execute(f"DELETE FROM {table}")
        store._db.execute("DELETE FROM settings WHERE name LIKE 'trees_%'")
        store._db.execute("INSERT INTO settings SELECT 'trees_unbuilt_until', max(number) FROM documents")
    store.tree.forget()
    assert not store.tree.is_built
    for _ in range(10_000):
        with store.transaction():
            if not store.tree.build_some():
                break
    assert store.tree.is_built


def checked(store: SqliteStore, room: str, prefix: Prefix = ()) -> Node:
    """Return the node of a prefix, after all nodes below it were found to be the sum of their leaves."""
    tree = RoomTree(store, room)
    leaves = tree.leaves(prefix)
    if leaves is not None:
        return total(leaf.node for leaf in leaves)
    children = tree.children(prefix)
    for digit in range(FAN_OUT):
        below = checked(store, room, (*prefix, digit))
        assert children[digit] == below
    return total(children)


def busy(one: Peer, room: str, count: int) -> list[str]:
    """Say and edit something, and annotate some of it."""
    refs: list[str] = []
    for number in range(count):
        refs.append(one.do("message.send", room_id=room, body=f"{one.name} {number}")["ref_id"])
        one.do("mutable.update", room_id=room, ref_id=refs[-1], body=f"{one.name} edited {number}")
        if number % 3 == 0:
            one.do("reactions.add", room_id=room, ref_id=refs[-1], emoji="👍")
    return refs


def leaves_of(store: SqliteStore, room: str) -> list[tuple[Any, ...]]:
    return store._db.execute(
        "SELECT place, clocks, digest FROM leaves JOIN trees ON number = tree WHERE room_id = ? ORDER BY place", (room,)
    ).fetchall()


def test_the_tree_is_what_the_log_says_and_is_the_same_made_anew() -> None:
    (alice,) = peers("alice", declarations=ALL)
    room = shared_room(alice)
    busy(alice, room, 3 * MAX_LISTED)
    root, leaves = alice.store.tree.root(room), leaves_of(alice.store, room)
    assert root.count == len(leaves) > 3 * MAX_LISTED
    assert checked(alice.store, room) == root
    anew(alice.store)
    assert (alice.store.tree.root(room), leaves_of(alice.store, room)) == (root, leaves)
    assert checked(alice.store, room) == root


def test_what_is_written_while_the_trees_are_built_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_tree, "BUILT_AT_ONCE", 5)
    (alice,) = peers("alice", declarations=ALL)
    room = shared_room(alice)
    refs = busy(alice, room, 20)
    with alice.store.transaction():
        for table in ("leaves", "nodes", "trees"):
            alice.store._db.execute(f"DELETE FROM {table}")
        alice.store._db.execute("INSERT INTO settings SELECT 'trees_unbuilt_until', max(number) FROM documents")
    alice.store.tree.forget()
    assert alice.engine.roots.statement(room) is None, "nothing is stated before it is summed up"
    for ref in refs:
        alice.do("mutable.update", room_id=room, ref_id=ref, body="once more")
        alice.do("message.send", room_id=room, body="meanwhile")
        with alice.store.transaction():
            alice.store.tree.build_some()
    assert alice.store.tree.is_built
    root = checked(alice.store, room)
    assert alice.store.tree.root(room) == root
    anew(alice.store)
    assert alice.store.tree.root(room) == root


def test_a_commit_that_fails_leaves_the_tree_as_it_was() -> None:
    (alice,) = peers("alice", declarations=ALL)
    room = shared_room(alice)
    busy(alice, room, 3)
    root = alice.store.tree.root(room)
    alice.store._db.execute("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT raise(ABORT, 'full'); END")
    with pytest.raises(sqlite3.Error):
        alice.do("message.send", room_id=room, body="lost")
    alice.store._db.execute("DROP TRIGGER full")
    assert alice.store.tree.root(room) == root == checked(alice.store, room)
    alice.do("message.send", room_id=room, body="kept")
    assert alice.store.tree.root(room) == checked(alice.store, room)


@pytest.mark.parametrize("seed", range(5))
def test_two_who_have_reconciled_have_one_root(seed: int) -> None:
    random = Random(seed)
    alice, bob = everyone = peers("alice", "bob", declarations=ALL)
    room = shared_room(alice, bob)
    refs: list[str] = []
    for _ in range(60):
        one = random.choice(everyone)
        done = random.random()
        if done < 0.5 or not refs:
            refs.append(one.do("message.send", room_id=room, body=str(random.random()))["ref_id"])
        else:
            mine = [
                ref["ref_id"]
                for ref in one.do("timeline.list", room_id=room, limit=200)["refs"]
                if ref["author"] == one.id
            ]
            if mine:
                one.do("mutable.update", room_id=room, ref_id=random.choice(mine), body=str(random.random()))
        for sender, receiver in ((alice, bob), (bob, alice)):
            out = sender.published()
            receiver.hear([item for item in out if random.random() < 0.5])
    for _ in range(3):
        reconcile(alice, bob, room, random)
        reconcile(bob, alice, room, random)
    assert alice.store.tree.root(room).same(bob.store.tree.root(room))
    assert checked(alice.store, room).same(checked(bob.store, room))
    assert sorted(map(str, alice.bodies(room))) == sorted(map(str, bob.bodies(room)))
    assert not alice.store.tree.due(room, 10)


def test_an_older_version_s_database_is_summed_up(tmp_path: Path) -> None:
    alice = Peer("alice", 1, tmp_path / "a.db", ALL)
    room = shared_room(alice)
    busy(alice, room, 10)
    root = alice.store.tree.root(room)
    alice.store.close()
    with sqlite3.connect(tmp_path / "a.db") as database:
        for table in ("leaves", "nodes", "trees", "roots", "due"):
            database.execute(f"DROP TABLE {table}")
        database.execute(
            "CREATE TABLE heads (room_id TEXT NOT NULL, entity_id TEXT NOT NULL, at_ms INTEGER NOT NULL, "
            "raw BLOB NOT NULL, PRIMARY KEY (room_id, entity_id)) WITHOUT ROWID"
        )
        database.execute("PRAGMA user_version = 10")
    alice.open()
    assert (SCHEMA.version, alice.store.tree.is_built) == (11, False)
    with alice.store.transaction():
        assert not alice.store.tree.build_some()
    assert alice.store.tree.root(room) == root


def test_a_forgotten_room_leaves_nothing_of_its_tree() -> None:
    (alice,) = peers("alice", declarations=ALL)
    room = shared_room(alice)
    busy(alice, room, 3 * MAX_LISTED)
    with alice.store.transaction():
        alice.store.removal.begin(room)
    for _ in range(100):
        with alice.store.transaction():
            if not alice.store.removal.step():
                break
    for table in ("leaves", "nodes", "trees", "due"):
        assert alice.store._db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
