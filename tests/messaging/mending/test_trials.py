"""Of what is worked out once more in an engine in memory nothing stays, and it is used again."""

from __future__ import annotations

import pytest

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.engine.engine import Engine
from sublet.messaging.mending.trials import Trials
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import Peer, peers, shared_room


def rows_of(engine: Engine) -> list[int]:
    store = engine.store
    assert isinstance(store, SqliteStore)
    return [
        store._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("documents", "log", "leaves")
    ]


def config_of(peer: Peer, room: str) -> tuple[str, list[tuple[int, bytes]]]:
    """Return the config of a room, and its log."""
    name = doc_id("config", room_id=room)
    row = peer.store.find_document(name)
    assert row is not None
    return name, list(enumerate(peer.store.log_after(row.number, {}, 1 << 20)[0], 1))


def test_an_engine_is_used_again_and_knows_nothing_of_before() -> None:
    (alice, bob), made = peers("alice", "bob"), list[Engine]()
    room = shared_room(alice, bob)
    name, log = config_of(alice, room)

    def make() -> Engine:
        made.append(peers("carol")[0].engine)
        return made[-1]

    trials, kept = Trials(make), []
    for _ in range(3):
        with trials.one() as engine:
            assert rows_of(engine) == [0, 0, 0]
            assert engine.rooms.state(room).creator is None
            engine.staging.replay(name, log)
            engine.rooms.changed(room)
            kept.append(rows_of(engine))
            assert engine.rooms.state(room).creator == alice.id
    assert len(made) == 1
    assert kept == [[1, len(log), 1]] * 3
    trials.rest()
    with trials.one() as first, trials.one() as second:
        assert first is not second
    assert len(made) == 3
    trials.rest()


def test_one_in_which_something_fails_is_not_used_again() -> None:
    made: list[Engine] = []

    def make() -> Engine:
        made.append(peers("carol")[0].engine)
        return made[-1]

    trials = Trials(make)
    with pytest.raises(KeyError), trials.one():
        raise KeyError
    with trials.one():
        assert len(made) == 2
    trials.rest()
