"""The thread that writes the log: what waits together is written together, and made durable once."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from sublet.daemon.audit_log.segments import MAX_SEGMENT_BYTES, SegmentFile, segment_path
from sublet.protocol.errors import LocalCode, SubletError

log = structlog.get_logger(__name__)

MAX_WAITING: Final = 10_000
MAX_WAITING_BYTES: Final = 32 << 20
"""Entries that wait for a disk that does not take them; then nothing is decided any more."""
MAX_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class Write:
    """A line to write, or none; ``done`` is told on the loop once all until it is durable, or why it is not."""

    seq: int
    line: bytes
    done: asyncio.Future[None] | None


class Writer:
    """Writes lines in order. A batch that fails stays and is tried again with the next line, so none is ever left out.

    Args:
        directory: where the files are.
        file: the one that is written to.
        written: told on the loop the number of the last entry that is in the file, after each batch.
    """

    def __init__(self, directory: Path, file: SegmentFile, written: Callable[[int], None]) -> None:
        self._directory = directory
        self._file = file
        self._written = written
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._waiting = 0
        self._bytes = 0
        self._thread = threading.Thread(target=self._run, name="audit log", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        """Tell whether another entry may wait until it is in the file."""
        return self._waiting < MAX_WAITING and self._bytes < MAX_WAITING_BYTES

    def put(self, write: Write) -> None:
        """Take ``write``; the caller checks ``has_room`` before."""
        self._waiting += 1
        self._bytes += len(write.line)
        self._queue.put(write)

    def close(self) -> None:
        """Write what waits, make it durable, and end. Blocks: call it in a thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        pending: list[Write] = []
        going = True
        while going:
            write = self._queue.get()
            while write is not None:
                pending.append(write)
                if len(pending) >= MAX_BATCH:
                    break
                try:
                    write = self._queue.get_nowait()
                except queue.Empty:
                    break
            else:
                going = False
            if pending:
                pending = self._write(pending, last=not going)
        try:
            self._file.close()
        except OSError as error:
            self._tell((), [], error)

    def _write(self, pending: list[Write], *, last: bool) -> list[Write]:
        """Write all of ``pending``, and return what is still to be written: everything, where the disk failed."""
        try:
            first = next((write.seq for write in pending if write.line), None)
            if first is not None and self._file.end >= MAX_SEGMENT_BYTES:
                self._rotate(first)
            content = b"".join(write.line for write in pending)
            self._file.write(content)
            waited_for = [write.done for write in pending if write.done is not None]
            if waited_for or last:
                self._synced(len(content))
        except Exception as error:
            if not isinstance(error, OSError):
                log.exception("the audit log could not be written")
            self._tell((), [write.done for write in pending if write.done is not None], error)
            # Nobody waits for them any more, yet the chain goes through them.
            return [Write(write.seq, write.line, None) for write in pending]
        self._tell(pending, waited_for, None)
        return []

    def _synced(self, size: int) -> None:
        """Make the last ``size`` bytes durable; where that fails, they are written over the next time, not twice."""
        try:
            self._file.sync()
        except OSError:
            self._file.take_back(size)
            raise

    def _rotate(self, first: int) -> None:
        # Whether its close fails or not, the one before is closed: its descriptor may be another file's from then on.
        before, self._file = self._file, SegmentFile(segment_path(self._directory, first), 0)
        before.close()

    def _tell(self, written: Sequence[Write], waited_for: list[asyncio.Future[None]], error: Exception | None) -> None:
        count, size = len(written), sum(len(write.line) for write in written)

        def tell() -> None:
            self._waiting -= count
            self._bytes -= size
            for done in waited_for:
                if done.done():
                    continue
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(unwritable(error))
            if error is None:
                self._written(written[-1].seq)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(tell)


def unwritable(error: Exception | None = None) -> SubletError:
    """Return the refusal of whatever would have to be in the log first."""
    why = f": {error.strerror}" if isinstance(error, OSError) else ""
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"the audit log can't be written{why}, and nothing is done that would not be in it",
        "Check that the disk of the state directory has space and is healthy.",
    )
