"""What a lease did, kept beside it in a file, so that the next process knows it after a crash (DESIGN 4.8, 4.10).

The page cache outlives a killed process, so nothing is flushed; after a power cut the memory may be short of the truth.
The file is a head of counters that is written over, and after it one entry per fact: its kind, a name and a value, each
ended by a zero byte, which no path can hold.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sublet.disk.plain_file import read_plain
from sublet.workspace.export import LeaseUsage
from sublet.workspace.own_names import OwnNames, Step
from sublet.workspace.quota import QuotaMet

MAX_MEMORY_BYTES: Final = 16 << 20
"""Beyond it nothing more is remembered, and what was touched counts as incomplete."""
_MAGIC: Final = b"SLM1"
_HEAD: Final = struct.Struct("<4sqqqqq")
_TOUCHED, _ROOT, _OVERFLOW, _QUOTA = b"T", b"R", b"O", b"Q"
_OWN_STEPS: Final[dict[Step, bytes]] = {"made": b"W", "moved": b"V", "gone": b"X", "born": b"B", "dead": b"F"}
_OWN: Final[dict[bytes, Step]] = {kind: step for step, kind in _OWN_STEPS.items()}
_RETURNING, _REFUSED, _RETURNED, _MARK = b"U", b"N", b"D", b"M"
_DENIED, _DENIED_COUNT = b"E", b"C"


class LeaseMemory:
    """The file of one lease. Nothing here raises: what can't be written down makes the memory incomplete, and says so.

    Args:
        path: the file, made with mode 0600 where there is none; else it is gone on with.
    """

    def __init__(self, path: Path) -> None:
        self._fd: int | None = None
        self._end = 0
        self._denied_count = 0
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._end = max(_HEAD.size, os.fstat(self._fd).st_size)

    def root(self, name: str, identity: tuple[int, int]) -> None:
        """Remember device and inode of the directory that is served as ``name``."""
        self._append(_ROOT, name.encode(), f"{identity[0]}:{identity[1]}".encode())

    def touch(self, name: str, path: bytes) -> bool:
        """Remember that ``path`` below the resource ``name`` was changed; False where that can't be."""
        return self._append(_TOUCHED, name.encode(), path)

    def mark(self, name: str, path: bytes) -> None:
        """Remember that an index of ``name`` had git not look at ``path``."""
        self._append(_MARK, name.encode(), path)

    def denied(self, line: str) -> None:
        """Remember a change that was refused for a rule, with the reason, as it was told."""
        self._append(_DENIED, b"", line.replace("\0", "?").encode(errors="replace"))

    def own(self, name: str, step: Step, text: bytes) -> None:
        """Remember a step of what the lease made in ``name``: ``OwnNames.replay``."""
        self._append(_OWN_STEPS[step], name.encode(), text)

    def overflow(self) -> None:
        """Remember that not every changed path is known."""
        self._append(_OVERFLOW, b"", b"")

    def quota_met(self, met: QuotaMet) -> None:
        """Remember that a change was refused for ``met``."""
        self._append(_QUOTA, met.name.encode(), str(met.bound).encode())

    def returning(self) -> None:
        """Remember that changes begin to come back, so that what came back before is not the result any more."""
        self._append(_RETURNING, b"", b"")

    def returned(self, refused: Sequence[str], refused_count: int) -> None:
        """Remember that all changes have come back, but for ``refused_count``, of which ``refused`` are told."""
        for line in refused:
            self._append(_REFUSED, b"", line.replace("\0", "?").encode(errors="replace"))
        self._append(_RETURNED, b"", str(refused_count).encode())

    def count(self, usage: LeaseUsage) -> None:
        """Remember the counters as they are now."""
        head = _HEAD.pack(
            _MAGIC, usage.bytes_read, usage.bytes_written, usage.operations, usage.quota.bytes, usage.quota.files
        )
        if self._fd is not None:
            with suppress(OSError):
                os.pwrite(self._fd, head, 0)
        if usage.denied_count != self._denied_count:
            self._denied_count = usage.denied_count
            self._append(_DENIED_COUNT, b"", str(usage.denied_count).encode())

    def close(self) -> None:
        """Keep the file and let go of it. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _append(self, kind: bytes, name: bytes, value: bytes) -> bool:
        entry = b"\0".join((kind + name, value, b""))
        if self._fd is None or self._end + len(entry) > MAX_MEMORY_BYTES:
            return False
        try:
            written = os.pwrite(self._fd, entry, self._end)
        except OSError:
            return False
        self._end += written
        return written == len(entry)


def recall(path: Path) -> LeaseUsage:
    """Return what an earlier process remembered of a lease; where that is nothing, or broken, it is incomplete."""
    usage = LeaseUsage(touched_overflow=True)
    try:
        raw = read_plain(path, MAX_MEMORY_BYTES, follow=False)
    except OSError:
        return usage
    with suppress(struct.error):
        magic, bytes_read, bytes_written, operations, quota_bytes, quota_files = _HEAD.unpack_from(raw)
        if magic == _MAGIC:
            usage.bytes_read, usage.bytes_written, usage.operations = bytes_read, bytes_written, operations
            usage.quota.bytes, usage.quota.files = quota_bytes, quota_files
    *fields, rest = raw[_HEAD.size :].split(b"\0")
    usage.touched_overflow = bool(rest) or len(fields) % 2 == 1
    for head, value in zip(fields[::2], fields[1::2], strict=False):
        kind, name = head[:1], head[1:].decode("ascii", "replace")
        if kind == _TOUCHED:
            usage.touched.setdefault(name, set()).add(value)
        elif kind == _ROOT:
            with suppress(ValueError):
                device, inode = value.split(b":")
                usage.roots[name] = int(device), int(inode)
        elif kind == _QUOTA:
            with suppress(ValueError):
                usage.quota.met = QuotaMet.of(name, int(value))
        elif kind in _OWN:
            usage.own.setdefault(name, OwnNames()).replay(_OWN[kind], value)
        elif kind == _MARK:
            usage.marks.setdefault(name, set()).add(value)
        elif kind == _DENIED:
            usage.denied.append(value.decode(errors="replace"))
            usage.denied_count = max(usage.denied_count, len(usage.denied))
        elif kind == _DENIED_COUNT:
            with suppress(ValueError):
                usage.denied_count = max(usage.denied_count, int(value))
        elif kind == _RETURNING:
            usage.returned, usage.refused, usage.refused_count = False, [], 0
        elif kind == _REFUSED:
            usage.refused.append(value.decode(errors="replace"))
        elif kind == _RETURNED:
            with suppress(ValueError):
                usage.refused_count, usage.returned = int(value), True
        else:
            usage.touched_overflow = True
    return usage
