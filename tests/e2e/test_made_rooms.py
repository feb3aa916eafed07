"""The large rooms of benchmarks are made without the engine, and are what it would have made, row by row."""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import _made_rooms as made_rooms
from sublet.protocol.ezagent.content import FORMATS, canonical, content_object, sign_content, sign_ref
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.ids import own_ref_id
from sublet.protocol.times import rfc3339_of_ms
from support.rooms import Peer, shared_room

SMALL_SHARD = 70
COUNT = 150
DIFFERING = {"events"}
"""What a daemon tells whoever watches just then."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let shards be small."""
    for place in ("_made_rooms", "sublet.messaging.opening.shards"):
        monkeypatch.setattr(f"{place}.REFS_PER_SHARD", SMALL_SHARD)


@pytest.mark.usefixtures("small")
def test_what_is_made_is_what_the_engine_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Peer("alice", 7, tmp_path / "first.db", made_rooms.ALL)
    bob = Peer("bob", 8, declarations=made_rooms.ALL)
    first.meet(bob)
    room = shared_room(first, bob)
    fields = made_rooms._first(first, room)
    first.store.close()
    made, written = (Path(shutil.copy(tmp_path / "first.db", tmp_path / f"{name}.db")) for name in ("made", "written"))
    quick, engine = (Peer("alice", 7, path, made_rooms.ALL) for path in (made, written))
    monkeypatch.setattr(made_rooms, "_first", lambda *_: copy.copy(fields))
    made_rooms.fill(quick, room, COUNT, workers=0)
    by_engine(engine, room, fields)
    names = quick.store._db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'words%'")
    for (table,) in names.fetchall():
        one, other = (set(peer.store._db.execute(f"SELECT * FROM {table}")) for peer in (quick, engine))
        assert table in DIFFERING or one == other, table
    assert len(quick.store.documents(room, "index")) == 3
    made_rooms.check(quick, room, COUNT)
    quick.do("message.send", room_id=room, body="one more")
    assert quick.bodies(room)[-2:] == [f"message {COUNT - 1}", "one more"]
    for peer in (quick, engine):
        peer.store.close()


def by_engine(peer: Peer, room: str, template: Mapping[str, Any]) -> None:
    """Let the engine write what ``fill`` makes."""
    engine, key = peer.engine, peer.entity.key
    for number in range(1, COUNT):
        if number % SMALL_SHARD == 0:
            engine.commit()
        if number == 1 or number % SMALL_SHARD == 0:
            peer.clock.now_ms += 1
        now_ms, created = peer.clock.now_ms, rfc3339_of_ms(peer.clock.now_ms)
        content = sign_content(content_object(peer.id, f"message {number}", FORMATS[0], created, []), key)
        fields = dict(template)
        fields |= {"ref_id": own_ref_id(now_ms, room, peer.id, number), "content_id": content["content_id"]}
        fields |= {"created_at": created}
        fields["signature"] = sign_ref(room, fields, key)
        document = engine.documents.open(engine.shards.for_new_ref(room))
        engine.writing._add(peer.id, document, fields, {str(content["content_id"]): canonical(content)})
    engine.commit()


@pytest.mark.usefixtures("small")
def test_what_was_made_wrong_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_rooms.made_room(tmp_path, 3, workers=0)
    monkeypatch.setattr(made_rooms, "seal", lambda key, who, doc, at, payload: seal(key, who, doc, at, payload + b"\0"))
    with pytest.raises(AssertionError, match="damaged"):
        made_rooms.made_room(tmp_path, 4, workers=0)
