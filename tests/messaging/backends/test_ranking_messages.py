"""A store of before there were ranks is brought to the order that its messages have when they come anew."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from attacks.kit.odd_fields import OddMember
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions import EXTENSIONS
from support.rooms import NOW_MS, Peer, local_entity, peers, shared_room

ALL = (*BUILT_INS, *EXTENSIONS)


def older(path: Path) -> None:
    """Bring a store back to the version before, as that one would have written it."""
    database = sqlite3.connect(path, isolation_level=None)
    ranked = dict(database.execute("SELECT entry_id, rank FROM entries"))
    for name in ("channel_refs", "thread_view", "reply_chain"):
        for key, rank, value in database.execute(
            "SELECT key, rank, value FROM index_entries WHERE name = ?", (name,)
        ).fetchall():
            ref_id = rank.rpartition("/")[2]
            old = f"2026-11-29T00:00:00.000Z/{ref_id}" if name == "channel_refs" else ref_id
            database.execute("DELETE FROM index_entries WHERE name = ? AND key = ? AND rank = ?", (name, key, rank))
            database.execute("INSERT INTO index_entries VALUES (?, ?, ?, ?)", (name, key, old, value))
    database.execute("DELETE FROM index_entries WHERE name = 'channel_places'")
    database.execute("UPDATE searched SET at = substr(ref_id, -26)")
    database.execute("DROP INDEX entries_by_rank")
    database.execute("ALTER TABLE entries DROP COLUMN rank")
    database.execute("DROP TABLE afters")
    for table in ("invitations", "roots", "trees", "leaves", "nodes", "due", "purged", "purges_due"):
        database.execute(f"DROP TABLE IF EXISTS {table}")
    database.execute("CREATE TABLE heads (room_id TEXT)")
    database.execute("PRAGMA user_version = 10")
    database.close()
    assert ranked


def views(peer: Peer, room: str, root: str) -> str:
    listed = [ref["ref_id"] for ref in peer.do("timeline.list", room_id=room, limit=200, peek=True)["refs"]]
    replies = [ref.get("replies") for ref in peer.do("timeline.list", room_id=room, limit=200, peek=True)["refs"]]
    thread = [ref["ref_id"] for ref in peer.do("threads.list", room_id=room, root=root)["refs"]]
    channel = [ref["ref_id"] for ref in peer.do("channels.refs", channel="work")["refs"]]
    before = peer.do("channels.refs", channel="work", room_id=room, before=channel[5])["refs"]
    return json.dumps([listed, replies, thread, channel, [ref["ref_id"] for ref in before]])


def test_an_older_store_is_ordered_like_a_new_one(tmp_path: Path) -> None:
    alice, mallory = peers("alice", "mallory", declarations=ALL)
    alice.store.close()
    alice.path = tmp_path / "alice.db"
    alice.open()
    alice.meet(mallory)
    room = shared_room(alice, mallory)
    root = alice.do("message.send", room_id=room, body="root")["ref_id"]
    evil = OddMember(mallory, room)
    for number in range(9):
        far = NOW_MS + (9 - number) * 86_400_000
        shard = ["2026-11", "2026-12", "2027-01"][number % 3]
        ext = {"ext.channels": ["work"], "ext.thread": {"root": root}, "ext.reply_to": {"ref_id": root}}
        alice.engine.intake.take([evil.ref(ext, shard, far)])
        alice.clock.now_ms += 1_000
        tags = {"channels": ["work"], "thread": root, "reply_to": root}
        alice.do("message.send", room_id=room, body=str(number), ext=tags)
    # What an older version wrote named nothing of other shards, so it is compared with a store that knows no such name.
    before = views(alice, room, root)
    ranks = dict(alice.store._db.execute("SELECT entry_id, rank FROM entries"))
    alice.store.close()
    older(alice.path)
    alice.open()
    after = dict(alice.store._db.execute("SELECT entry_id, rank FROM entries"))
    own = [ref for ref, rank in ranks.items() if after[ref] == rank]
    assert set(after) == set(ranks)
    assert len(own) >= 9  # all but those of ours that stand behind what they name in another shard
    assert set(json.loads(views(alice, room, root))[2]) == set(json.loads(before)[2])
    assert alice.do("message.send", room_id=room, body="goes on")
    assert alice.bodies(room)[-1] == "goes on"


def test_an_older_store_without_strange_times_stays_as_it_was(tmp_path: Path) -> None:
    (alice,) = peers("alice", declarations=ALL)
    alice.store.close()
    alice.path = tmp_path / "alice.db"
    alice.open()
    room = shared_room(alice)
    root = alice.do("message.send", room_id=room, body="root")["ref_id"]
    for number in range(40):
        alice.clock.now_ms += number % 2  # some in one millisecond
        tags = {"channels": ["work"], "thread": root, "reply_to": root}
        alice.do("message.send", room_id=room, body=str(number), ext=tags)
    before = views(alice, room, root)
    ranks = alice.store._db.execute("SELECT entry_id, rank FROM entries ORDER BY entry_id").fetchall()
    alice.store.close()
    older(alice.path)
    alice.open()
    assert alice.store._db.execute("SELECT entry_id, rank FROM entries ORDER BY entry_id").fetchall() == ranks
    assert views(alice, room, root) == before
    assert local_entity("alice", 1).record.entity_id == alice.id
