"""The log on a disk: what is found when somebody has been at it, and what a crash in the middle of a write leaves."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import pytest
from nacl.signing import SigningKey

from sublet.daemon.audit_log import log as log_module
from sublet.daemon.audit_log import writer as writer_module
from sublet.daemon.audit_log.chain import Head, entry_line, line_hash
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.audit_log.memory import LogMemory
from sublet.daemon.audit_log.segments import GROW_BYTES, SegmentFile, segments
from sublet.daemon.audit_log.verify import Verdict, verify
from sublet.daemon.storage.store import Store
from sublet.protocol.errors import LocalCode, SubletError

pytestmark = pytest.mark.anyio

KEY = SigningKey(b"k" * 32)
PUBLIC = bytes(KEY.verify_key)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await Store.open(tmp_path / "sublet.db")
    yield made
    await made.close()


@asynccontextmanager
async def running(directory: Path, store: Store) -> AsyncIterator[AuditLog]:
    """One run of a daemon, with a clean end."""
    log = await AuditLog.open(directory, LogMemory(store), KEY)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(log.serve)
            await anyio.lowlevel.checkpoint()
            yield log
            group.cancel_scope.cancel()
    finally:
        await log.close()


async def crashed(directory: Path, store: Store, entries: int) -> AuditLog:
    """Return the log of a daemon that is killed after it made ``entries`` durable: nothing is remembered or signed."""
    log = await AuditLog.open(directory, LogMemory(store), KEY)
    for number in range(entries):
        await log.add_durably("decision", {"n": number})
    await asyncio.to_thread(log._writer.close)
    return log


async def checked(directory: Path, store: Store) -> Verdict:
    return verify(directory, await LogMemory(store).load(), PUBLIC)


def read(directory: Path) -> list[bytes]:
    return [line for _, path in segments(directory) for line in path.read_bytes().rstrip(b"\0").splitlines()]


def kinds(directory: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in read(directory)]


def fill(log: AuditLog) -> None:
    for number in range(12):
        log.add("decision", {"n": number})


async def filled(directory: Path, store: Store, entries: int = 5) -> None:
    async with running(directory, store) as log:
        for number in range(entries):
            log.add("decision", {"n": number})


async def test_an_unbroken_chain_over_several_runs(tmp_path: Path, store: Store) -> None:
    for _ in range(3):
        await filled(tmp_path / "log", store)
    verdict = await checked(tmp_path / "log", store)
    assert verdict == Verdict(entries=21, first=1, last=21, signed=20)
    assert kinds(tmp_path / "log")[:7] == ["opened", *["decision"] * 5, "checkpoint"]
    assert segments(tmp_path / "log")[0][1].read_bytes().endswith(b"}\n")


def _change(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[2].replace(b'"n":1', b'"n":7'), *lines[3:]]


def _recomputed(lines: list[bytes]) -> list[bytes]:
    """Return lines whose third is changed, with every hash after it made to fit, as one without the key would."""
    import hashlib

    from sublet.protocol.canonical import canonical_json

    made = _change(lines)
    for index in range(3, len(made)):
        entry = json.loads(made[index])
        entry["prev"] = hashlib.sha256(made[index - 1]).hexdigest()
        made[index] = canonical_json(entry)
    return made


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (_change, "one of them was changed"),
        (lambda lines: lines[:3] + lines[4:], "missing, or out of order"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], "missing, or out of order"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "missing, or out of order"),
        (lambda lines: lines[:-2], "cut off"),
        (lambda lines: lines[:-1], "cut off"),
        (lambda lines: lines[1:], "missing, or out of order"),
        (lambda lines: [], "cut off"),
        (lambda lines: [*lines[:2], b"{}", *lines[2:]], "expected here"),
        (lambda lines: [*lines[:2], lines[2].replace(b":", b": "), *lines[3:]], "it was changed"),
        (_recomputed, "signature"),
    ],
)
async def test_whoever_has_been_at_it_is_found_out(
    tmp_path: Path, store: Store, tamper: Callable[[list[bytes]], list[bytes]], said: str
) -> None:
    directory = tmp_path / "log"
    await filled(directory, store)
    [(_, path)] = segments(directory)
    path.write_bytes(b"".join(line + b"\n" for line in tamper(read(directory))))
    verdict = await checked(directory, store)
    assert said in verdict.problem


async def test_a_log_that_was_cut_off_is_told_of_at_the_next_start_and_for_ever(tmp_path: Path, store: Store) -> None:
    directory = tmp_path / "log"
    await filled(directory, store)
    [(_, path)] = segments(directory)
    path.write_bytes(b"".join(line + b"\n" for line in read(directory)[:3]))
    for _ in range(2):
        await filled(directory, store)
        assert "found cut off or changed" in (await checked(directory, store)).problem
    assert kinds(directory).count("gap") == 1


async def test_a_log_that_is_gone_is_told_of(tmp_path: Path, store: Store) -> None:
    directory = tmp_path / "log"
    await filled(directory, store)
    segments(directory)[0][1].unlink()
    await filled(directory, store)
    assert kinds(directory)[0] == "gap"


@pytest.mark.parametrize("more", [1, 40])
async def test_what_was_added_while_no_daemon_ran_is_told_of(tmp_path: Path, store: Store, more: int) -> None:
    """Also where it fits to what stands before it, as anybody can make it; a crash leaves what looks the same."""
    directory = tmp_path / "log"
    await filled(directory, store)
    [(_, path)] = segments(directory)
    last = read(directory)[-1]
    head = Head(json.loads(last)["seq"], line_hash(last))
    for _ in range(more):
        line, head = entry_line(head, "decision", "2026-01-01T00:00:00Z", {"decision": "allow"})
        path.write_bytes(path.read_bytes() + line)
    await filled(directory, store)
    assert "found cut off or changed" in (await checked(directory, store)).problem


async def test_a_stop_whose_end_can_not_be_remembered_is_taken_for_a_crash(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    store = await Store.open(tmp_path / "sublet.db")
    log = await AuditLog.open(directory, LogMemory(store), KEY)
    await log.add_durably("decision", {"n": 1})
    await store.close()
    await log.close()
    again = await Store.open(tmp_path / "sublet.db")
    try:
        await filled(directory, again)
        assert (await checked(directory, again)).problem == ""
    finally:
        await again.close()


async def test_half_an_entry_after_a_stop_in_order_is_no_crash(tmp_path: Path, store: Store) -> None:
    directory = tmp_path / "log"
    await filled(directory, store)
    [(_, path)] = segments(directory)
    path.write_bytes(path.read_bytes() + b'{"half":')
    await filled(directory, store)
    assert "found cut off or changed" in (await checked(directory, store)).problem


async def test_a_log_of_which_the_store_was_made_to_know_nothing_is_told_of(tmp_path: Path, store: Store) -> None:
    directory = tmp_path / "log"
    await filled(directory, store)
    await store.write(lambda connection: connection.execute("DELETE FROM audit_log"))
    await filled(directory, store)
    assert "found cut off or changed" in (await checked(directory, store)).problem


async def test_a_fifo_in_place_of_the_log_is_refused_and_not_waited_for(tmp_path: Path, store: Store) -> None:
    directory = tmp_path / "log"
    await filled(directory, store)
    [(_, path)] = segments(directory)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="no regular file"):
        await AuditLog.open(directory, LogMemory(store), KEY)


@pytest.mark.parametrize("left", [1, 20, 100])
async def test_a_write_that_a_crash_has_torn_is_mended_truthfully(tmp_path: Path, store: Store, left: int) -> None:
    """What was acknowledged is there; what was not is cut off, and the log tells how much that was."""
    directory = tmp_path / "log"
    await crashed(directory, store, 3)
    [(_, path)] = segments(directory)
    last = read(directory)[-1]
    with path.open("ab") as file:
        file.write(last[:left] + bytes(GROW_BYTES))
    assert (await checked(directory, store)).problem.startswith("something that is no entry stands after entry 4")
    async with running(directory, store) as log:
        assert [entry.get("n") for entry in await log.entries(1, limit=3)] == [0, 1, 2]
    verdict = await checked(directory, store)
    assert verdict.problem == ""
    found = [json.loads(line) for line in read(directory)]
    assert [entry["kind"] for entry in found] == ["opened", *["decision"] * 3, "mended", "opened", "checkpoint"]
    assert found[4]["removed_bytes"] == left


async def test_entries_that_the_store_has_not_heard_of_yet_are_no_breach(tmp_path: Path, store: Store) -> None:
    """A crash between the file and the store leaves the file ahead."""
    directory = tmp_path / "log"
    await filled(directory, store)
    await crashed(directory, store, 3)
    assert (await checked(directory, store)).problem == ""
    await filled(directory, store)
    assert (await checked(directory, store)).problem == ""


async def test_files_follow_each_other_and_the_oldest_go(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "log"
    monkeypatch.setattr(writer_module, "MAX_SEGMENT_BYTES", 500)
    monkeypatch.setattr(log_module, "MAX_SEGMENTS", 3)
    monkeypatch.setattr(log_module, "FLUSH_SECONDS", 0.01)
    async with running(directory, store) as log:
        for number in range(30):
            await log.add_durably("decision", {"n": number})
        with anyio.fail_after(10):
            while segments(directory)[0][0] == 1:
                await log.entries(log.head.seq, limit=1, timeout=1)
        assert (await log.verify()).problem == ""
    verdict = await checked(directory, store)
    assert verdict.problem == ""
    assert verdict.first > 1
    assert "forgotten" in kinds(directory)
    segments(directory)[1][1].unlink()
    assert "a file is missing" in (await checked(directory, store)).problem


async def test_what_is_allowed_waits_until_it_is_on_the_disk(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = SegmentFile.sync

    def sync(self: SegmentFile) -> None:
        real(self)
        synced.append(self.end)

    monkeypatch.setattr(SegmentFile, "sync", sync)
    log = await AuditLog.open(tmp_path / "log", LogMemory(store), KEY)
    await log.add_durably("decision", {})
    assert synced
    assert len(read(tmp_path / "log")) == 2
    await log.close()


async def test_where_the_disk_fails_nothing_is_acknowledged_and_nothing_is_left_out_later(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "log"
    log = await AuditLog.open(directory, LogMemory(store), KEY)
    await log.add_durably("decision", {"n": 0})

    def full(self: SegmentFile, content: bytes) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as broken:
        broken.setattr(SegmentFile, "write", full)
        for number in (1, 2):
            with pytest.raises(SubletError, match="No space left") as no:
                await log.add_durably("decision", {"n": number})
            assert no.value.code is LocalCode.UNAVAILABLE
    await log.add_durably("decision", {"n": 3})
    await log.close()
    assert [json.loads(line).get("n") for line in read(directory)] == [None, 0, 1, 2, 3]
    assert (await checked(directory, store)).problem == ""


async def test_what_could_not_be_made_durable_is_written_once(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "log"
    log = await AuditLog.open(directory, LogMemory(store), KEY)
    with monkeypatch.context() as broken:
        broken.setattr(SegmentFile, "sync", lambda _: (_ for _ in ()).throw(OSError(5, "broken")))
        with pytest.raises(SubletError, match="broken"):
            await log.add_durably("decision", {"n": 0})
    await log.add_durably("decision", {"n": 1})
    await log.close()
    assert [json.loads(line).get("n") for line in read(directory)] == [None, 0, 1]
    assert (await checked(directory, store)).problem == ""


async def test_a_file_that_can_not_be_closed_well_is_not_closed_again(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor may be another file's by then."""
    directory = tmp_path / "log"
    monkeypatch.setattr(writer_module, "MAX_SEGMENT_BYTES", 400)
    log = await AuditLog.open(directory, LogMemory(store), KEY)
    real, failed = SegmentFile.close, list[Path]()

    def close(self: SegmentFile) -> None:
        real(self)
        if not failed:
            failed.append(self.path)
            raise OSError(5, "broken")

    monkeypatch.setattr(SegmentFile, "close", close)
    refused = 0
    for number in range(8):
        try:
            await log.add_durably("decision", {"n": number})
        except SubletError:
            refused += 1
    await log.close()
    assert (refused, len(failed)) == (1, 1)
    assert [json.loads(line).get("n") for line in read(directory)] == [None, *range(8)]
    assert (await checked(directory, store)).problem == ""


async def test_a_file_that_can_not_be_begun_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", full)
        for _ in range(5):
            with pytest.raises(OSError, match="No space left"):
                SegmentFile(tmp_path / "new", 1)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_whoever_spoils_an_older_file_keeps_no_daemon_from_starting(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "log"
    monkeypatch.setattr(writer_module, "MAX_SEGMENT_BYTES", 500)
    await crashed(directory, store, 12)
    older = segments(directory)[-2][1]
    kept = older.read_bytes().splitlines()[:-1]
    older.write_bytes(b"".join(line + b"\n" for line in [*kept, b"spoiled"]))
    await filled(directory, store)
    assert (await checked(directory, store)).problem != ""


@pytest.mark.parametrize(("bound", "most"), [("MAX_WAITING", 10), ("MAX_WAITING_BYTES", 1_000)])
async def test_a_disk_that_takes_nothing_bounds_what_waits(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(writer_module, bound, most)
    log = await AuditLog.open(tmp_path / "log", LogMemory(store), KEY)
    with monkeypatch.context() as broken:
        broken.setattr(SegmentFile, "write", lambda *_: (_ for _ in ()).throw(OSError(5, "broken")))
        with pytest.raises(SubletError, match="can't be written"):
            fill(log)
    await log.close()


async def test_long_entries_leave_memory_and_are_read_from_the_file(tmp_path: Path, store: Store) -> None:
    async with running(tmp_path / "log", store) as log:
        for number in range(100):
            await log.add_durably("decision", {"n": number, "resource": "x" * 60_000})
        assert sum(len(line) for _, line in log._recent) <= log_module.KEPT_BYTES
        found = await log.entries(1, limit=500)
        # A page is bounded in bytes, and the next one goes on, from the file as from memory.
        assert sum(len(str(entry["resource"])) for entry in found) <= log_module.PAGE_BYTES
        while more := await log.entries(int(str(found[-1]["seq"])), limit=500):
            assert sum(len(str(entry["resource"])) for entry in more) <= log_module.PAGE_BYTES
            found += more
        assert [entry["n"] for entry in found] == list(range(100))
        assert [entry["n"] for entry in await log.entries(log.head.seq - 2, limit=500)] == [98, 99]


async def test_a_log_that_is_written_meanwhile_is_whole(tmp_path: Path, store: Store) -> None:
    async with running(tmp_path / "log", store) as log, anyio.create_task_group() as group:

        async def write() -> None:
            while True:
                await log.add_durably("decision", {"text": "x" * 5_000})

        for _ in range(3):
            group.start_soon(write)
        for _ in range(10):
            assert (await log.verify()).problem == ""
        group.cancel_scope.cancel()


async def test_readers_wait_for_news_and_page_from_the_files(tmp_path: Path, store: Store) -> None:
    directory = tmp_path / "log"
    await filled(directory, store, 20)
    async with running(directory, store) as log:
        before = log.head.seq
        assert [entry["seq"] for entry in await log.entries(3, limit=4)] == [4, 5, 6, 7]
        found: list[int] = []

        async def follow() -> None:
            found.extend(cast("int", entry["seq"]) for entry in await log.entries(before, limit=5, timeout=10))

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await anyio.lowlevel.checkpoint()
            log.add("decision", {})
        assert found == [before + 1]
        assert await log.entries(log.head.seq, limit=5) == []


def deny(log: AuditLog, *numbers: int) -> None:
    for number in numbers:
        log.add("decision", {"decision": "deny", "n": number})


async def test_denials_come_newest_first_and_page_by_page(tmp_path: Path, store: Store) -> None:
    async with running(tmp_path / "log", store) as log:
        assert await log.denials(None, limit=5) == ([], 0)
        deny(log, 0, 1)
        log.add("decision", {"decision": "allow", "resource": '"decision":"deny"'})
        log.add("decision", {"decision": "needs_grant", "n": 2})
        deny(log, 3)
        found, cursor = await log.denials(None, limit=3)
        assert [entry["n"] for entry in found] == [3, 2, 1]
        older, end = await log.denials(cursor, limit=3)
        assert ([entry["n"] for entry in older], end) == ([0], 0)
        # Exactly as many as are wanted: nothing older is left.
        assert (await log.denials(None, limit=4))[1] == 0


async def test_long_denials_come_in_pages_of_so_many_bytes(tmp_path: Path, store: Store) -> None:
    async with running(tmp_path / "log", store) as log:
        for number in range(60):
            log.add("decision", {"decision": "deny", "n": number, "resource": "x" * 60_000})
        found: list[object] = []
        cursor: int | None = None
        while cursor != 0:
            page, cursor = await log.denials(cursor, limit=500)
            assert 0 < len(page) * 60_000 <= log_module.PAGE_BYTES
            found += [entry["n"] for entry in page]
        assert found == list(range(59, -1, -1))


async def test_denials_are_looked_for_in_so_many_files_at_a_time(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "MAX_SEGMENT_BYTES", 500)
    async with running(tmp_path / "log", store) as log:
        deny(log, 0)
        for number in range(12):
            await log.add_durably("decision", {"decision": "allow", "n": number})
        deny(log, 1)
        assert len(segments(tmp_path / "log")) > log_module.MAX_DENIAL_SEGMENTS + 1
        numbers: list[object] = []
        cursor: int | None = None
        while cursor != 0:
            found, following = await log.denials(cursor, limit=10)
            numbers += [entry["n"] for entry in found]
            assert cursor is None or following < cursor
            cursor = following
        assert numbers == [1, 0]


async def test_a_line_that_somebody_spoilt_hides_no_other_denial(tmp_path: Path, store: Store) -> None:
    async with running(tmp_path / "log", store) as log:
        deny(log, 0, 1)
        await log.add_durably("decision", {"decision": "deny", "n": 2})
        [(_, path)] = segments(tmp_path / "log")
        path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":}'))
        found, _ = await log.denials(None, limit=5)
        assert [entry["n"] for entry in found] == [2, 0]
