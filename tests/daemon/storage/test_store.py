from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sublet.daemon.storage import store as store_module
from sublet.daemon.storage.schema import SCHEMA_VERSION
from sublet.daemon.storage.store import Store
from sublet.protocol.errors import LocalCode, SubletError
from support.noise import noise

pytestmark = pytest.mark.anyio

KILLED_WRITER = """
import asyncio, sys
from pathlib import Path
from sublet.daemon.storage.store import Store

async def writer(store, name):
    for number in range(10**9):
        path = f"{name}/{number}"
        await store.write(lambda c: c.execute("INSERT INTO lend_roots VALUES (?, '')", (path,)).rowcount)
        print(path, flush=True)

async def main():
    store = await Store.open(Path(sys.argv[1]))
    async with asyncio.TaskGroup() as group:
        for name in range(8):
            group.create_task(writer(store, name))

asyncio.run(main())
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "sublet.db")
    yield store
    await store.close()


def add(path: str) -> store_module.Work[int]:
    return lambda connection: connection.execute("INSERT INTO lend_roots VALUES (?, '')", (path,)).rowcount


def posted(path: str) -> store_module.Work[None]:
    def work(connection: sqlite3.Connection) -> None:
        add(path)(connection)

    return work


def roots(connection: sqlite3.Connection) -> list[str]:
    return [row["path"] for row in connection.execute("SELECT path FROM lend_roots ORDER BY path")]


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "sublet.db"
    child = subprocess.Popen([sys.executable, "-c", KILLED_WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = [child.stdout.readline() for _ in range(200)]
    child.kill()
    acknowledged += child.stdout.readlines()
    child.wait()
    child.stdout.close()
    # a line that the kill cut in two was printed, but not read as acknowledged
    told = {line.strip() for line in acknowledged if line.endswith("\n")}
    assert Path(f"{path}-wal").stat().st_size > 0
    store = await Store.open(path)
    assert told <= set(await store.read(roots))
    await store.close()


async def test_a_clean_stop_leaves_no_log_and_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "sublet.db"
    store = await Store.open(path)
    await store.write(add("/a"))
    for name in ("sublet.db", "sublet.db-wal"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    await store.close()
    await store.close()
    assert not Path(f"{path}-wal").exists()
    for call in (store.write(add("/b")), store.read(roots)):
        with pytest.raises(SubletError, match="stopping"):
            await call
    with pytest.raises(SubletError, match="stopping"):
        store.post(lambda _: None)


async def test_writes_that_wait_share_a_commit_and_fail_alone(store: Store) -> None:
    commits: list[str] = []

    def watch(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(lambda statement: commits.append(statement) if "COMMIT" in statement else None)

    await store.write(watch)
    commits.clear()
    answers = await asyncio.gather(*(store.write(add(f"/{n % 50}")) for n in range(100)), return_exceptions=True)
    assert sum(answer == 1 for answer in answers) == 50
    assert sum(isinstance(answer, sqlite3.IntegrityError) for answer in answers) == 50
    assert len(commits) < 20
    assert len(await store.read(roots)) == 50


async def test_a_failed_piece_undoes_all_of_itself(store: Store) -> None:
    def two_then_break(connection: sqlite3.Connection) -> None:
        add("/one")(connection)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await store.write(two_then_break)
    assert await store.read(roots) == []


async def test_a_cancelled_caller_does_not_lose_the_news(store: Store) -> None:
    told: list[int] = []
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.write(add("/a"), after=told.append))
        await asyncio.sleep(0)
        task.cancel()
    await store.write(add("/b"))
    assert told == [1]
    assert await store.read(roots) == ["/a", "/b"]


async def test_more_writers_than_places(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_places", asyncio.Semaphore(3))
    await asyncio.gather(*(store.write(add(f"/{n}")) for n in range(40)))
    assert len(await store.read(roots)) == 40


async def test_posted_writes_keep_their_order_and_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_POSTED", 2)
    store.post(posted("/posted"))
    store.post(posted("/posted"))  # fails, and is logged
    with pytest.raises(SubletError, match="keep up"):
        store.post(lambda _: None)
    await store.write(lambda connection: connection.execute("UPDATE lend_roots SET added_at = 'seen'"))
    assert await store.read(lambda c: c.execute("SELECT added_at FROM lend_roots").fetchone()[0]) == "seen"
    store.post(lambda _: None)


async def test_the_reader_cannot_write(store: Store) -> None:
    with pytest.raises(SubletError, match="readonly"):
        await store.read(add("/a"))


async def test_a_full_disk_fails_the_group_and_nothing_else(store: Store) -> None:
    await store.write(add("/before"))
    pages = await store.write(lambda c: int(c.execute("PRAGMA page_count").fetchone()[0]))
    await store.write(lambda c: c.execute(f"PRAGMA max_page_count={pages}").fetchone()[0])
    with pytest.raises(SubletError, match="full") as failed:
        await store.write(add("/" + "x" * 100_000))
    assert failed.value.code is LocalCode.UNAVAILABLE
    await store.write(lambda c: c.execute("PRAGMA max_page_count=1000000").fetchone()[0])
    await store.write(add("/later"))
    assert await store.read(roots) == ["/before", "/later"]


async def test_a_second_daemon_is_kept_out(store: Store) -> None:
    with pytest.raises(SubletError) as refused:
        await Store.open(store.path)
    assert refused.value.code is LocalCode.ALREADY_RUNNING


async def test_a_newer_schema_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "sublet.db"
    await (await Store.open(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(SubletError, match=f"version {SCHEMA_VERSION + 1}"):
            await Store.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["header", "page", "other program"])
async def test_a_damaged_database_is_refused_and_kept(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "sublet.db"
    store = await Store.open(path)
    for number in range(300):
        store.post(posted(f"/{number:03}" + "x" * 100))
    await store.close()
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[:16] = b"not a database!!"
    elif damage == "page":
        content[4096:] = noise(len(content) - 4096)
        # as after a kill: a log that is not empty asks for a check
        Path(f"{path}-wal").write_bytes(b"x")
    else:
        content[68:72] = b"\0\0\0\1"
    path.write_bytes(content)
    with pytest.raises(SubletError, match="can't be used") as refused:
        await Store.open(path)
    assert "doctor --repair" in refused.value.hint
    assert path.read_bytes() == content


async def test_the_room_of_what_was_removed_is_given_back_in_steps(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "SHRINK_PAGES", 64)
    steps = 0
    give_back = store_module._give_back

    def counted(connection: sqlite3.Connection) -> bool:
        nonlocal steps
        steps += 1
        return give_back(connection)

    monkeypatch.setattr(store_module, "_give_back", counted)
    for start in range(0, 400, 100):
        async with asyncio.TaskGroup() as group:
            for number in range(start, start + 100):
                group.create_task(store.write(add(f"{number}/" + "x" * 3000)))
    kept = store.path.stat().st_size
    await store.write(lambda connection: connection.execute("DELETE FROM lend_roots").rowcount)
    assert store.path.stat().st_size >= kept, "removing alone gives nothing back"
    async with asyncio.TaskGroup() as group:
        shrinking = group.create_task(store.shrink())
        meanwhile = [group.create_task(store.write(add(f"meanwhile {number}"))) for number in range(20)]
    before, after = shrinking.result()
    assert [write.result() for write in meanwhile] == [1] * 20
    assert after < 1 << 19 < before
    assert after == store.path.stat().st_size
    assert steps > 3
    assert await store.read(lambda c: c.execute("PRAGMA integrity_check").fetchone()[0]) == "ok"
    assert len(await store.read(roots)) == 20
    assert await store.shrink() == (store._bytes(), store._bytes())
