"""What is mounted where, read from the kernel's table: unlike ``stat`` that never asks the file system itself."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sublet.protocol.patterns import Pattern

_MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = Pattern(rb"\\([0-7]{3})")


class TableEntry(NamedTuple):
    """One mount (proc(5), ``/proc/pid/mountinfo``): its number, its parent's, and the path it is mounted on."""

    mount_id: int
    parent_id: int
    point: bytes


def read_table() -> list[TableEntry]:
    """Return all mounts that this process can name, in the order of their making."""
    found = []
    for line in _MOUNTINFO.read_bytes().splitlines():
        mount_id, parent_id, _, _, point, _ = line.split(b" ", 5)
        if b"\\" in point:
            point = _OCTAL.sub(lambda code: bytes([int(code[1], 8)]), point)
        found.append(TableEntry(int(mount_id), int(parent_id), point))
    return found


def file_system_of(fd: int) -> bytes:
    """Return the type of the file system that an open file lies in, empty where the table does not have it.

    Raises:
        OSError: there is no table.
    """
    wanted = b""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_bytes().splitlines():
        name, _, value = line.partition(b":")
        if name == b"mnt_id":
            wanted = value.strip()
    for line in _MOUNTINFO.read_bytes().splitlines():
        fields, _, kind = line.partition(b" - ")
        if fields.split(b" ", 1)[0] == wanted:
            return kind.split(b" ", 1)[0]
    return b""


def mounted_below(root: Path) -> list[Path]:
    """Return the mount points strictly below ``root``, the last mounted first."""
    above = os.fsencode(root).rstrip(b"/") + b"/"
    # Compared as bytes: a machine may have thousands of mounts, and this is asked often.
    below = [entry.point for entry in read_table() if entry.point.startswith(above) and entry.point != above]
    return [Path(os.fsdecode(point)) for point in reversed(below)]


def is_mounted(path: Path) -> bool:
    """Tell whether something is mounted at exactly ``path``, an absolute path without links."""
    point = os.fsencode(path)
    return any(entry.point == point for entry in read_table())


@contextmanager
def table_changes() -> Iterator[asyncio.Event]:
    """Give an event that is set whenever something is mounted or unmounted.

    The table wakes whoever polls it only with an exceptional condition, which no event loop watches. An epoll set of
    our own takes that, and can itself be watched.
    """
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    with _MOUNTINFO.open("rb") as table, select.epoll() as waiter:
        waiter.register(table, select.EPOLLPRI)

        def woken() -> None:
            waiter.poll(0)  # otherwise it would wake us again
            changed.set()

        loop.add_reader(waiter, woken)
        try:
            yield changed
        finally:
            loop.remove_reader(waiter)
