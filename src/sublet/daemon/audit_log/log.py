"""The audit log as the daemon holds it: append, wait until durable, read, check, and mend what a crash has torn.

What is allowed and changes something is durable before it happens. Other entries are written at once, and durable with
the next that is, or within ``FLUSH_SECONDS``: a loss of power may take those that let nothing happen.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import anyio
import structlog
from nacl.signing import SigningKey

from sublet.daemon.audit_log.chain import NOTHING, BrokenChain, Head, checkpoint, entry_line, line_hash, parse_entry
from sublet.daemon.audit_log.memory import LogMemory
from sublet.daemon.audit_log.segments import MAX_SEGMENTS, SegmentFile, lines, segment_path, segments, torn
from sublet.daemon.audit_log.verify import Remembered, Verdict, verify
from sublet.daemon.audit_log.writer import Write, Writer, unwritable
from sublet.daemon.times import rfc3339
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.protocol.patterns import Pattern

FLUSH_SECONDS: Final = 1.0
CHECKPOINT_ENTRIES: Final = 500
CHECKPOINT_SECONDS: Final = 300.0
WRITE_SECONDS: Final = 1.0
"""How long who looks for denials waits for entries that are not written yet."""
MAX_DENIAL_SEGMENTS: Final = 2
"""Files that one search for denials reads, about 60 ms each."""
PAGE_BYTES: Final = 1 << 20
"""Of the entries that one answer holds: callers say how many entries they want, and others how long one is."""
KEPT_IN_MEMORY: Final = 2_000
KEPT_BYTES: Final = 4 << 20
"""The newest entries, for those who follow the log: so many, and of so many bytes."""

_DENIED: Final = Pattern(rb'"decision":"(?:deny|needs_grant)"')

log = structlog.get_logger(__name__)


class AuditLog:
    """The log of one daemon. ``open`` makes it; ``serve`` keeps the store's memory of it fresh; ``close`` ends it."""

    def __init__(self, directory: Path, memory: LogMemory, key: SigningKey, file: SegmentFile, head: Head) -> None:
        self._directory = directory
        self._memory = memory
        self._key = key
        self._head = head
        self._in_file = head.seq
        self._signed = head.seq
        self._recent: deque[tuple[int, bytes]] = deque()
        self._recent_bytes = 0
        self._news = asyncio.Event()
        self._writer = Writer(directory, file, self._written)
        # What is checked is not removed meanwhile, nor is the store's memory of it ahead of what is read.
        self._keeping = asyncio.Lock()

    @classmethod
    async def open(cls, directory: Path, memory: LogMemory, key: SigningKey) -> AuditLog:
        """Return the log in ``directory``, mended where a crash has torn its last line, and say so in it.

        Raises:
            OSError: it can't be read or written.
        """
        remembered = await memory.load()
        found = await asyncio.to_thread(_found, directory, remembered)
        await memory.begin()
        made = cls(directory, memory, key, found.file, found.head)
        if found.torn:
            digest = hashlib.sha256(found.torn).hexdigest()
            made.add("mended", {"removed_bytes": len(found.torn), "removed_sha256": digest})
            log.warning("the end of the audit log was torn by a crash and cut off", bytes=len(found.torn))
        if found.gap:
            await made.add_durably(
                "gap", {"remembered_hash": remembered.head.hash, "remembered_seq": remembered.head.seq}
            )
            log.error("the audit log was cut off or changed while no daemon ran; `sublet audit verify` tells more")
        made.add("opened", {})
        return made

    @property
    def head(self) -> Head:
        """Number and hash of the last entry."""
        return self._head

    def add(self, kind: str, fields: Mapping[str, JsonValue]) -> int:
        """Append an entry, without waiting for the disk, and return its number.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk takes no entries any more.
        """
        return self._add(kind, fields, None)

    async def add_durably(self, kind: str, fields: Mapping[str, JsonValue]) -> int:
        """Append an entry and return its number once it would survive a loss of power.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk does not take it.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        seq = self._add(kind, fields, done)
        await done
        return seq

    async def entries(self, cursor: int, *, limit: int, timeout: float = 0) -> list[dict[str, JsonValue]]:
        """Return entries after number ``cursor``: up to ``limit``, and one at least, of up to ``PAGE_BYTES`` in all.

        Args:
            cursor: number of the last entry that was read.
            limit: how many.
            timeout: seconds to wait for the first.
        """
        if cursor >= self._in_file and timeout > 0:
            with anyio.move_on_after(timeout):
                while cursor >= self._in_file:
                    await self._news.wait()
        recent = [(seq, line) for seq, line in self._recent if cursor < seq <= self._in_file]
        if recent and recent[0][0] == cursor + 1:
            page = list(_fitting((line for _, line in recent), limit))
            return await asyncio.to_thread(lambda: [parse_entry(line) for line in page])
        return await asyncio.to_thread(_read, self._directory, cursor, limit)

    async def denials(self, before: int | None, *, limit: int) -> tuple[list[dict[str, JsonValue]], int]:
        """Return the newest entries before number ``before`` that tell of a denial, the newest first.

        Args:
            before: where an earlier call has stopped; None begins with the newest entry.
            limit: how many; fewer where they would take more than ``PAGE_BYTES``.

        Returns:
            the entries, and where to go on; 0 where nothing older is left.
        """
        with anyio.move_on_after(WRITE_SECONDS):
            # What was decided until now is found; it is on its way into the file.
            newest = self._head.seq
            while self._in_file < newest:
                await self._news.wait()
        upto = self._in_file + 1 if before is None else before
        return await asyncio.to_thread(_denials, self._directory, upto, limit)

    async def tail(self, count: int) -> int:
        """Return the number after which ``count`` entries come."""
        return max(0, self._in_file - count)

    async def verify(self) -> Verdict:
        """Check everything that is in the files now."""
        async with self._keeping:
            await self._flush()
            remembered = await self._memory.load()
            key = bytes(self._key.verify_key)
            # Entries that come meanwhile may be half written while they are read, so they are left for the next time.
            return await asyncio.to_thread(verify, self._directory, remembered, key, upto=remembered.head.seq)

    async def serve(self) -> None:
        """Until cancelled, flush, sign and remember; the last time when cancelled."""
        elapsed = 0.0
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                elapsed += FLUSH_SECONDS
                unsigned = self._head.seq - self._signed
                due = elapsed >= CHECKPOINT_SECONDS and unsigned > 0
                await self._keep(sign=due or unsigned >= CHECKPOINT_ENTRIES)
                if self._signed == self._head.seq:
                    elapsed = 0.0
        finally:
            with anyio.CancelScope(shield=True):
                await self._keep(sign=True)

    async def close(self) -> None:
        """Write what waits, end the thread, and have the store remember that this is the end."""
        await asyncio.to_thread(self._writer.close)
        await asyncio.sleep(0)  # what the thread told last is taken note of
        if self._in_file != self._head.seq:
            return
        try:
            await self._memory.remember_head(self._head, closed=True)
        except SubletError as error:
            # The next start then takes it for a crash, after which more may stand there than the store knows.
            log.warning("the end of the audit log could not be remembered", reason=str(error))

    def _add(self, kind: str, fields: Mapping[str, JsonValue], done: asyncio.Future[None] | None) -> int:
        if not self._writer.has_room:
            raise unwritable()
        line, head = entry_line(self._head, kind, rfc3339(), fields)
        self._head = head
        self._remember(head.seq, line[:-1])
        self._writer.put(Write(head.seq, line, done))
        return head.seq

    def _remember(self, seq: int, line: bytes) -> None:
        self._recent.append((seq, line))
        self._recent_bytes += len(line)
        while len(self._recent) > KEPT_IN_MEMORY or self._recent_bytes > KEPT_BYTES:
            self._recent_bytes -= len(self._recent.popleft()[1])

    def _written(self, seq: int) -> None:
        self._in_file = max(self._in_file, seq)
        self._news.set()
        self._news = asyncio.Event()

    async def _keep(self, *, sign: bool) -> None:
        """Make all durable and let the store remember the head; nothing is raised, the next time may succeed."""
        try:
            async with self._keeping:
                if sign and self._head.seq > self._signed:
                    self.add("checkpoint", checkpoint(self._head, self._key))
                    self._signed = self._head.seq
                if await self._flush():
                    await self._forget_old()
        except Exception:
            log.exception("the audit log could not be kept safe; it is tried again")

    async def _flush(self) -> bool:
        """Wait until everything is durable, and remember it; tell whether there was anything."""
        head = self._head
        if head.seq == self._memory.known.head.seq:
            return False
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.put(Write(head.seq, b"", done))
        await done
        await self._memory.remember_head(head)
        return True

    async def _forget_old(self) -> None:
        """Remove the oldest files where there are too many, once the chain and the store tell where it begins now."""
        found = await asyncio.to_thread(segments, self._directory)
        while len(found) > MAX_SEGMENTS:
            (_, path), following = found.pop(0), found[0][0]
            anchor = await asyncio.to_thread(_last, path, following - 1)
            assert anchor is not None
            await self.add_durably("forgotten", {"through": anchor.seq, "hash": anchor.hash})
            await self._memory.remember_anchor(anchor)
            await asyncio.to_thread(path.unlink)


class _Found:
    """What a start finds: the file to go on with, the head, what a torn write left, and whether entries are missing."""

    def __init__(self, file: SegmentFile, head: Head, rest: bytes, *, gap: bool) -> None:
        self.file, self.head, self.torn, self.gap = file, head, rest, gap


def _found(directory: Path, remembered: Remembered) -> _Found:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    there = segments(directory)
    if not there:
        head = remembered.anchor
        file = SegmentFile(segment_path(directory, head.seq + 1), 0)
        return _Found(file, head, b"", gap=remembered.head.seq > head.seq)
    first, path = there[-1]
    head, met = Head(first - 1, NOTHING), remembered.head.seq < first
    if len(there) > 1:
        before = _last(there[-2][1], first - 1)
        head = before or head
        met = met and (remembered.head.seq < head.seq or remembered.head == head)
    elif first - 1 == remembered.anchor.seq:
        head = remembered.anchor
    for line in lines(path):
        try:
            seq = parse_entry(line).get("seq")
        except BrokenChain:  # verify() will tell; what is added goes on from what is there
            seq = None
        head = Head(seq if isinstance(seq, int) else head.seq + 1, line_hash(line))
        met = met or head == remembered.head
    end, rest = torn(path)
    file = SegmentFile(path, end)
    if rest:
        file.wipe(len(rest))
    # What follows the end of a run that stopped in order nobody of ours has written.
    added = not remembered.at_all or (remembered.closed and (head != remembered.head or bool(rest)))
    return _Found(file, head, rest, gap=not met or added)


def _last(path: Path, seq: int) -> Head | None:
    """Return number and hash of the last entry in a file, which the next file follows.

    The entry is not read: somebody may have been at it, which ``verify()`` tells and which must not keep us from work.
    """
    last = None
    for line in lines(path):
        last = line
    if last is None:
        return None
    return Head(seq, line_hash(last))


def _fitting(found: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Yield the first of some lines, ``limit`` at most, and no more than fit into a page."""
    room = PAGE_BYTES
    for number, line in enumerate(found):
        room -= len(line)
        if number >= limit or (number and room < 0):
            return
        yield line


def _read(directory: Path, cursor: int, limit: int) -> list[dict[str, JsonValue]]:
    return [parse_entry(line) for line in _fitting(_after(directory, cursor), limit)]


def _after(directory: Path, cursor: int) -> Iterator[bytes]:
    there = segments(directory)
    for index, (_, path) in enumerate(there):
        if index + 1 < len(there) and there[index + 1][0] <= cursor + 1:
            continue
        for line in lines(path):
            seq = parse_entry(line).get("seq")
            if isinstance(seq, int) and seq > cursor:
                yield line


def _denials(directory: Path, before: int, limit: int) -> tuple[list[dict[str, JsonValue]], int]:
    found: list[dict[str, JsonValue]] = []
    room = PAGE_BYTES
    there = [(first, path) for first, path in segments(directory) if first < before]
    for first, path in there[: -MAX_DENIAL_SEGMENTS - 1 : -1]:
        kept: deque[tuple[int, dict[str, JsonValue]]] = deque()
        size = 0
        for line in lines(path):
            if _DENIED.search(line) is None:
                continue
            try:
                entry = parse_entry(line)
            except BrokenChain:  # verify() will tell
                continue
            seq = entry.get("seq")
            if isinstance(seq, int) and seq >= before:
                break
            if entry.get("decision") in ("deny", "needs_grant"):
                kept.append((len(line), entry))
                size += len(line)
            # One more than fits stays, since it tells that something older is left.
            while len(kept) > 1 and (len(kept) > limit - len(found) + 1 or size - kept[0][0] > room):
                size -= kept.popleft()[0]
        for length, entry in reversed(kept):
            room -= length
            if found and (len(found) >= limit or room < 0):
                return found, int(str(found[-1]["seq"]))
            found.append(entry)
        before = first
    return found, before if len(there) > MAX_DENIAL_SEGMENTS else 0
