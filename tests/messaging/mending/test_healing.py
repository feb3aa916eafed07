"""What is damaged in a member's database is found, made anew from what is signed, and had again from the others."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.engine.engine import Engine
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.mending.asking_again import AskingAgain, Asks
from sublet.messaging.mending.healing import Healing
from sublet.messaging.mending.inspection import Found, KnownKeys
from sublet.messaging.mending.looking import Looking
from sublet.messaging.mending.losses import Damage, Losses, Part
from sublet.messaging.mending.mend import Mended
from support.damage import cut, execute, flip_in, flip_pages, pages_of
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub
from support.rooms import local_entity

pytestmark = pytest.mark.anyio
MESSAGES = 60
GOLDEN = Path(__file__).parents[2] / "golden"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Sick:
    """Bob's database, closed, with all that he and Alice have said."""

    def __init__(self, path: Path, room: str, bodies: list[str | None]) -> None:
        self.path = path
        self.room = room
        self.bodies = bodies
        self.aside: list[tuple[str, bytes, str]] = []
        self.registry = Registry(BUILT_INS)
        self.local = [local_entity("bob", 3)]
        self.healing = Healing(path, now_ms, lambda *kept: self.aside.append(kept))
        self.losses = Losses(path.with_name("bob-lost.db"))

    def look(self) -> list[Damage]:
        """Return all that is damaged."""
        looking = Looking(self.path, lambda: self.healing._trial(self.registry, self.local), self.local, lambda: None)
        found = [looking.pages()]
        found = found if found[0] else [looking.rows()]
        found = found if found[0] else [*looking.sums(lambda: None)] or [None]
        if found == [None]:
            whys = [looking.document(name) for name in looking.documents()]
            found += [Damage(Part.DOCUMENT, one.document.doc_id, one.why) for one in whys if one and one.why]
            found += [
                Damage(Part.DOCUMENT, one.document.doc_id, "contents")
                for one in whys
                if one and not one.why and one.missing
            ]
        return [one for one in found if one is not None]

    def mend(self) -> Mended:
        """Note all that is damaged and mend it, as a start does."""
        if damages := self.look():
            self.losses.note(*(one for one in damages if one.why != "contents"))
            for one in damages:
                if one.why == "contents":
                    self.losses.lose(one.name, self.room, one.why)
        return self.healing.mend(self.registry, self.local)

    async def whole(self, bob: Member) -> None:
        """Ask until nothing is lost any more, and see that everything is there again."""
        asking = bob.service.asking
        asks = Asks(bob.service.on_engine, asking.document, asking.key, bob.service.fetch)
        looking = Looking(self.path, lambda: self.healing._trial(self.registry, self.local), self.local, lambda: None)
        again = AskingAgain(self.losses, asks, looking.document)
        for entity in looking.unknown():
            await asks.key(entity)
        with anyio.fail_after(SECONDS):
            while await again.all():
                await anyio.sleep(0.05)
        assert looking.unknown() == []
        await bob.until(self.room, lambda bodies: bodies == self.bodies)
        assert self.look() == []


class Talk:
    """What Alice and Bob have said and then kept: made once, since each test begins with it."""

    def __init__(self) -> None:
        self.room = ""
        self.bodies: list[str | None] = []
        self._files: dict[str, bytes] = {}

    async def put(self, tmp_path: Path) -> None:
        """Put both databases, closed, into a directory."""
        if not self._files:
            (first := tmp_path / "first").mkdir()
            await self._make(first)
            self._files = {path.name: path.read_bytes() for path in first.iterdir()}
        for name, content in self._files.items():
            (tmp_path / name).write_bytes(content)

    async def _make(self, place: Path) -> None:
        hub = MemoryHub()
        async with member("alice", 1, hub, place) as alice, member("bob", 2, hub, place) as bob:
            self.room = await room_of(alice, bob)
            for number in range(MESSAGES):
                await (alice, bob)[number % 2].bus.message.send(room_id=self.room, body=f"{number} " + "x" * 200)
            for one in (alice, bob):
                await one.until(self.room, lambda bodies: len(bodies) == MESSAGES)
            self.bodies = await alice.bodies(self.room)
            assert self.bodies == await bob.bodies(self.room)


TALK = Talk()


async def ready(tmp_path: Path) -> Sick:
    """Return Bob's database after a talk, with Alice's beside it."""
    await TALK.put(tmp_path)
    return Sick(tmp_path / "bob.db", TALK.room, [*TALK.bodies])


@asynccontextmanager
async def sick(tmp_path: Path, hub: MemoryHub) -> AsyncIterator[tuple[Member, Sick]]:
    """Yield Alice, who is there, and Bob's database after a talk."""
    bob = await ready(tmp_path)
    async with member("alice", 6, hub, tmp_path) as alice:
        yield alice, bob


def index_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        (number,) = db.execute("SELECT number FROM documents WHERE kind = 'index'").fetchone()
    return int(number)


def config_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        (number,) = db.execute("SELECT number FROM documents WHERE kind = 'config'").fetchone()
    return int(number)


def drop_last(path: Path, count: int) -> None:
    """Delete the last updates of the talk, and all that follows from them."""
    index = index_of(path)
    with closing(sqlite3.connect(path)) as db:
        last = db.execute("SELECT seq FROM log WHERE document = ? ORDER BY seq DESC LIMIT ?", (index, count)).fetchall()
    for table in ("log", "entries", "writes", "deletions"):
        for (seq,) in last:
            execute(path, f"DELETE FROM {table} WHERE document = ? AND seq = ?", index, seq)


def drop_document(path: Path, number: int) -> None:
    for table in ("log", "entries", "writes", "deletions", "clients", "contents"):
        execute(path, f"DELETE FROM {table} WHERE document = ?", number)
    execute(path, "DELETE FROM documents WHERE number = ?", number)


async def test_a_sound_database_is_found_sound_and_nothing_is_written(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with sick(tmp_path, hub) as (_, bob):
        before = sorted(path.name for path in tmp_path.iterdir())
        assert bob.look() == []
        assert not bob.mend()
        after = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("bob.db-"))
        assert after == before


GONE: dict[str, Callable[[Path], object]] = {
    "an update in the middle": lambda path: execute(
        path,
        "DELETE FROM log WHERE seq IN (SELECT seq FROM log WHERE document = ? ORDER BY seq LIMIT 5 OFFSET 20)",
        index_of(path),
    ),
    "the last updates": lambda path: execute(
        path,
        "DELETE FROM log WHERE seq IN (SELECT seq FROM log WHERE document = ? ORDER BY seq DESC LIMIT 5)",
        index_of(path),
    ),
    "the last updates with all that follows from them": lambda path: drop_last(path, 5),
    "a document with all that is kept of it": lambda path: drop_document(path, index_of(path)),
    "the config with all that is kept of it": lambda path: drop_document(path, config_of(path)),
    "a digest": lambda path: execute(path, "DELETE FROM leaves WHERE document = ?", index_of(path)),
    "a digest of something else": lambda path: execute(path, "UPDATE leaves SET digest = zeroblob(32)"),
    "elements": lambda path: execute(path, "DELETE FROM entries WHERE clock > 30"),
    "writes": lambda path: execute(path, "DELETE FROM writes"),
    "clients": lambda path: execute(path, "DELETE FROM clients WHERE document = ?", index_of(path)),
    "contents": lambda path: execute(path, "DELETE FROM contents WHERE number % 3 = 0"),
    "a document": lambda path: execute(path, "DELETE FROM documents WHERE kind = 'index'"),
    "the config's document": lambda path: execute(path, "DELETE FROM documents WHERE kind = 'config'"),
    "the config's log": lambda path: execute(
        path, "DELETE FROM log WHERE document = (SELECT number FROM documents WHERE kind = 'config')"
    ),
    "records": lambda path: execute(path, "DELETE FROM records"),
    "the whole log": lambda path: execute(path, "DELETE FROM log"),
    "torn records": lambda path: execute(path, "UPDATE records SET raw = x'00'"),
    "torn settings and events": lambda path: (
        execute(path, "UPDATE events SET data = '{'"),
        execute(path, "INSERT INTO settings VALUES ('odd', '{')"),
    ),
    "torn contents": lambda path: execute(path, "UPDATE contents SET raw = x'7b7d' WHERE number % 3 = 0"),
    "an envelope": lambda path: flip_in(path, b"@alice"),
    "numbers of an update": lambda path: execute(path, "UPDATE log SET until = until + 1 WHERE seq = 30"),
    "hashes": lambda path: execute(path, "UPDATE log SET head = x'00' WHERE seq % 7 = 0"),
    "a document's name": lambda path: execute(
        path, "UPDATE documents SET doc_id = replace(doc_id, '2', '3') WHERE kind = 'index'"
    ),
    "a document's kind": lambda path: execute(path, "UPDATE documents SET kind = 'ext' WHERE kind = 'index'"),
    "a text that is none": lambda path: execute(
        path, "UPDATE documents SET doc_id = CAST(x'65ff65' AS TEXT) WHERE kind = 'config'"
    ),
    "a place in the order": lambda path: execute(path, "UPDATE entries SET origin_clock = 0 WHERE clock > 30"),
    "pages of the log": lambda path: flip_pages(path, *pages_of(path, "log")[2:5]),
    "pages of elements": lambda path: flip_pages(path, *pages_of(path, "contents")[1:3]),
    "half of the file": lambda path: cut(path, 0.5),
    "the first page": lambda path: flip_pages(path, 1),
    "the header": lambda path: path.write_bytes(b"no database" + path.read_bytes()[11:]),
    "all of the file": lambda path: path.write_bytes(b"x" * 9_000),
}


@pytest.mark.parametrize("what", GONE)
async def test_what_is_gone_is_found_and_had_again(tmp_path: Path, what: str) -> None:
    hub = MemoryHub()
    async with sick(tmp_path, hub) as (alice, bob):
        GONE[what](bob.path)
        assert bob.look() or what == "records", "it is found"
        bob.mend()
        async with member("bob", 3, hub, tmp_path) as again:
            await bob.whole(again)
            await again.bus.message.send(room_id=bob.room, body="goes on")
            await alice.until(bob.room, lambda bodies: bodies == [*bob.bodies, "goes on"])
            assert await again.bodies(bob.room) == [*bob.bodies, "goes on"]


async def test_what_was_written_last_is_missed_before_the_database_is_opened(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with sick(tmp_path, hub) as (_, bob):
        drop_last(bob.path, 5)
        done = bob.healing.mend(bob.registry, bob.local)  # as a start does, before anybody has looked
        assert list(done.documents.values()) == ["the last of what was written is not here"]
        assert any("members are asked" in line for line in bob.healing.remarks())
        async with member("bob", 3, hub, tmp_path) as again:
            await bob.whole(again)


async def test_what_is_deleted_under_a_daemon_is_not_signed_a_second_time(tmp_path: Path) -> None:
    hub = MemoryHub()
    lacking: list[bool] = []
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        bob.service._lacking = lambda: lacking.append(True)
        room = await room_of(alice, bob)
        for number in range(6):
            await bob.bus.message.send(room_id=room, body=f"{number}")
        await alice.until(room, lambda bodies: len(bodies) == 6)

        def close(engine: Engine) -> None:
            drop_last(tmp_path / "bob.db", 3)
            engine.documents.forget()  # as if many others had been opened since

        await bob.service.on_engine(close)
        await bob.bus.message.send(room_id=room, body="goes on")
        await alice.until(room, lambda bodies: "goes on" in bodies)
        assert set(await alice.bodies(room)) == {*map(str, range(6)), "goes on"}
        assert await alice.service.on_engine(forks_of) == []
        await anyio.wait_all_tasks_blocked()
        assert lacking


def forks_of(engine: Engine) -> list[object]:
    rows = engine.store.rows()  # type: ignore[attr-defined]
    return [fork for row in rows.documents() for fork in rows.forks(row.number)]


async def test_what_nobody_else_has_is_kept_where_it_builds_on_nothing_that_is_gone(tmp_path: Path) -> None:
    hub = MemoryHub()
    bob = await ready(tmp_path)
    # Nobody is there to ask, and Bob's own last words are on his disk alone.
    async with member("bob", 4, hub, tmp_path) as alone:
        for number in range(5):
            await alone.bus.message.send(room_id=bob.room, body=f"alone {number}")
        said = await alone.bodies(bob.room)
    execute(
        bob.path,
        "DELETE FROM log WHERE seq IN (SELECT seq FROM log WHERE document = ? ORDER BY seq LIMIT 3 OFFSET 9)",
        index_of(bob.path),
    )
    bob.mend()
    assert [one.room_id for one in bob.losses.lost()] == [bob.room]
    assert bob.healing.remarks()
    async with member("bob", 3, hub, tmp_path) as again:
        assert set(await again.bodies(bob.room)) < set(said)
        async with member("alice", 5, hub, tmp_path) as alice:
            bob.bodies = said
            await bob.whole(again)
            await alice.until(bob.room, lambda bodies: bodies == said)


async def test_contents_that_nobody_has_do_not_have_the_log_read_again_and_again(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with sick(tmp_path, hub) as (_, bob):
        for path in (bob.path, tmp_path / "alice.db"):
            execute(path, "DELETE FROM contents WHERE number % 3 = 0")
        bob.mend()
        async with member("bob", 3, hub, tmp_path) as again:
            asking, looked = again.service.asking, list[str]()
            asks = Asks(again.service.on_engine, asking.document, asking.key, again.service.fetch)
            looking = Looking(bob.path, lambda: bob.healing._trial(bob.registry, bob.local), bob.local, lambda: None)

            def look(name: str) -> Found | None:
                looked.append(name)
                return looking.document(name)

            asks_again = AskingAgain(bob.losses, asks, look)
            for _ in range(5):
                assert await asks_again.all(), "it is asked for whenever somebody is there"
            assert len(looked) == 1


async def test_what_is_damaged_again_and_again_is_told_and_left(tmp_path: Path) -> None:
    bob = await ready(tmp_path)
    damage = Damage(Part.DOCUMENT, f"ezagent/{bob.room}/config", "odd")
    assert [bob.healing._note(damage) for _ in range(3)] == [True, True, False]
    assert any("damaged again after it was mended: odd" in line for line in bob.healing.remarks())


def test_a_file_that_tells_of_damage_and_is_damaged_itself_has_everything_looked_at(tmp_path: Path) -> None:
    losses = Losses(tmp_path / "lost.db")
    losses.note(Damage(Part.PAGES, "", "odd"))
    (tmp_path / "lost.db").write_bytes(b"x" * 5_000)
    with pytest.raises(sqlite3.DatabaseError):
        losses.due()
    assert [one.part for one in losses.due()] == [Part.ROWS]


def test_keys_are_those_that_records_prove() -> None:
    own, other = local_entity("bob", 1), local_entity("alice", 2)
    known = KnownKeys([own])
    assert set(known.of([])) == {own.record.entity_id}
    raw = other.record.encode()
    for _ in range(2):
        assert set(known.of([raw, raw[:-9], b""])) == {own.record.entity_id, other.record.entity_id}


@pytest.mark.parametrize("version", ["schema-9", "messages-10", "messages-13"])
def test_what_an_older_version_has_written_is_sound(tmp_path: Path, version: str) -> None:
    subprocess.run(["tar", "-xzf", GOLDEN / version / "worker.tar.gz", "-C", tmp_path], check=True)
    path = tmp_path / "worker/state/messaging.db"
    SqliteStore(path).close()  # which brings it to this version
    healing, registry, local = Healing(path, now_ms), Registry((*BUILT_INS, *EXTENSIONS)), [local_entity("bob", 3)]
    looking = Looking(path, lambda: healing._trial(registry, local), local, lambda: None)
    found = {name: looking.document(name) for name in looking.documents()}
    assert len(found) > 8
    assert {name: one.why for name, one in found.items() if one is not None and one.why} == {}
    assert looking.rows() is None
