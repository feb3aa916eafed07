"""The digest trees of the database: what the log says, in whatever order it came."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
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
from sublet.protocol.errors import SubletError
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


def something(one: Peer, room: str, random: Random) -> None:
    """Do something in a room that an entity may do there just now."""
    shown = one.do("timeline.list", room_id=room, limit=200)["refs"]
    mine = [ref["ref_id"] for ref in shown if ref["author"] == one.id and ref["status"] != "deleted_by_author"]
    others = [ref["ref_id"] for ref in shown]
    what = random.choice(("say", "say", "edit", "share", "write", "react", "unreact"))
    with suppress(SubletError):  # it may not, or something else stands there by now
        if what == "say" or not mine:
            one.do("message.send", room_id=room, body=str(random.random()))
        elif what == "edit":
            one.do("mutable.update", room_id=room, ref_id=random.choice(mine), body=str(random.random()))
        elif what == "share":
            one.do("collab.update_acl", room_id=room, ref_id=random.choice(mine), mode="room_members")
        elif what == "write":
            one.do("collab.edit", room_id=room, ref_id=random.choice(others), index=0, delete=0, insert=one.name[0])
        elif what == "react":
            one.do("reactions.add", room_id=room, ref_id=random.choice(others), emoji="👍")
        else:
            one.do("reactions.remove", room_id=room, ref_id=random.choice(others), emoji="👍")


@pytest.mark.parametrize("seed", range(6))
def test_all_who_have_reconciled_have_one_root_and_show_the_same(seed: int) -> None:
    random = Random(seed)
    everyone = peers("alice", "bob", "carol", declarations=ALL)
    room = shared_room(*everyone)
    for _ in range(90):
        one = random.choice(everyone)
        something(one, room, random)
        out = one.published()
        for other in everyone:
            if other is not one:
                other.hear([item for item in out if random.random() < 0.5])
    for _ in range(3):
        for one in everyone:
            for other in everyone:
                if one is not other:
                    reconcile(one, other, room, random)
    first, *others = everyone
    root = checked(first.store, room)
    assert first.store.tree.root(room) == root
    for other in others:
        assert checked(other.store, room).same(root)
        assert leaves_of(other.store, room) == leaves_of(first.store, room)
    shown = [one.do("timeline.list", room_id=room, limit=200, peek=True)["refs"] for one in everyone]
    assert shown[0] == shown[1] == shown[2]
    anew(first.store)
    assert first.store.tree.root(room) == root


def test_an_older_version_s_database_is_summed_up(tmp_path: Path) -> None:
    alice = Peer("alice", 1, tmp_path / "a.db", ALL)
    room = shared_room(alice)
    busy(alice, room, 10)
    root = alice.store.tree.root(room)
    alice.store.close()
    with sqlite3.connect(tmp_path / "a.db") as database:
        for table in ("leaves", "nodes", "trees", "roots", "due", "purged", "purges_due"):
            database.execute(f"DROP TABLE {table}")
        database.execute(
            "CREATE TABLE heads (room_id TEXT NOT NULL, entity_id TEXT NOT NULL, at_ms INTEGER NOT NULL, "
            "raw BLOB NOT NULL, PRIMARY KEY (room_id, entity_id)) WITHOUT ROWID"
        )
        database.execute("PRAGMA user_version = 12")
    alice.open()
    assert (SCHEMA.version, alice.store.tree.is_built) == (14, False)
    with alice.store.transaction():
        assert not alice.store.tree.build_some()
    assert alice.store.tree.root(room) == root


def test_a_forgotten_room_leaves_nothing_of_its_tree() -> None:
    (alice,) = peers("alice", declarations=ALL)
    room = shared_room(alice)
    busy(alice, room, 3 * MAX_LISTED)
    with alice.store.transaction():
        alice.store.removal.begin(room)
    for _ in range(1_000):
        with alice.store.transaction():
            if not alice.store.removal.step():
                break
    for table in ("leaves", "nodes", "trees", "due"):
        assert alice.store._db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_what_changes_nothing_is_not_written_since_nobody_would_take_it() -> None:
    alice, bob = peers("alice", "bob", declarations=ALL)
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="text")["ref_id"]
    for _ in range(2):
        alice.do("collab.update_acl", room_id=room, ref_id=ref, mode="room_members")
    bob.hear(alice.published())
    assert bob.refused() == {}
    assert bob.store.tree.root(room).same(alice.store.tree.root(room))
