"""Notices within a second that a configuration file has changed, however it was written, removed or linked.

What is told of a directory is only a hint; whether a file has changed is found by looking at it. So where directories
can't be watched, as for a name in them that is not UTF-8, which a peer can make in a lent directory, or for want of
watches of the system, files are looked at once a second, and the watch is tried again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import anyio
import structlog

from sublet.daemon.reloading.reloader import Reloader
from sublet.protocol.errors import SubletError
from sublet.protocol.text import clean_line, clean_name
from sublet.tasks import described

DEBOUNCE_MS: Final = 200
"""Changes that follow each other so closely are one."""
LOOK_AGAIN_MS: Final = 5_000
"""How often is looked without being told, as a watch can be lost."""
GONE_SECONDS: Final = 0.3
"""How long a file that is gone may take to come back before it counts as removed: some editors save that way."""
MAX_WATCHED: Final = 1_024
POLL_SECONDS: Final = 1.0
"""How often is looked where nothing can be watched."""
MAX_NAMES: Final = 10_000
"""Of one directory, looked through for one that can't be read."""
MAX_REASON_CHARS: Final = 200
MAX_UNREADABLE: Final = 5

log = structlog.get_logger(__name__)

Stamp = tuple[tuple[str, int, int, int], ...]


class Watcher:
    """Has a reloader read files when they change; ``serve`` must run.

    Args:
        reloader: what knows the files.
    """

    def __init__(self, reloader: Reloader) -> None:
        self._reloader = reloader
        self._stamp: Stamp = ()
        self._trouble = ""
        self._unreadable: tuple[str, ...] = ()
        self._unwatchable: tuple[str, ...] = ()

    @property
    def remarks(self) -> list[str]:
        """What a person should know of the watch; clean."""
        found = [
            f"the name of {name} is not UTF-8, so changes there are noticed some seconds later; rename or remove it"
            for name in dict.fromkeys((*self._unreadable, *self._unwatchable[:MAX_UNREADABLE]))
        ]
        if self._trouble:
            every = f"files are looked at every {POLL_SECONDS:.0f} s instead"
            found.append(f"configuration directories can't be watched, and {every}: {self._trouble}")
        return found

    async def serve(self) -> None:
        """Watch until cancelled."""
        stop = threading.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_when_cancelled, stop)
            await self._serve(stop)

    async def _stop_when_cancelled(self, stop: threading.Event) -> None:
        """Call off the thread that waits for changes: a cancellation alone would let it wait to its end."""
        try:
            await anyio.sleep_forever()
        finally:
            stop.set()

    async def _serve(self, stop: threading.Event) -> None:
        # What changed between the start of the daemon and this moment is found by the first look.
        self._stamp = await asyncio.to_thread(self._look)
        await self._reloaded()
        while True:
            directories = await asyncio.to_thread(self._directories)
            try:
                await self._watch(directories, stop)
            except Exception as error:
                # Whatever it is, the next look finds what has changed. A directory that went away meanwhile is not in
                # the next set of directories.
                await self._not_watched(error, directories)
                await anyio.sleep(POLL_SECONDS)
            await self._check()

    async def _not_watched(self, error: Exception, directories: Sequence[Path]) -> None:
        trouble = clean_line(described(error), MAX_REASON_CHARS)
        if trouble != self._trouble:
            log.warning("configuration directories can't be watched for now", reason=trouble)
        self._trouble = trouble
        self._unreadable = await asyncio.to_thread(_unreadable, directories)

    async def _watched(self, directories: Sequence[Path]) -> None:
        """Take back what was told of a trouble that is over."""
        self._trouble = ""
        if self._unreadable:
            self._unreadable = await asyncio.to_thread(_unreadable, directories)

    async def _watch(self, directories: Sequence[Path], stop: threading.Event) -> None:
        """Return once there is another set of directories to watch."""
        from watchfiles import awatch

        async for _ in awatch(
            *directories,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=50,
            rust_timeout=LOOK_AGAIN_MS,
            yield_on_timeout=True,
            recursive=False,
            stop_event=stop,
        ):
            await self._watched(directories)
            await self._check()
            if await asyncio.to_thread(self._directories) != directories:
                return

    async def _check(self) -> None:
        stamp = await asyncio.to_thread(self._look)
        if stamp == self._stamp:
            return
        if len(stamp) < len(self._stamp):
            await anyio.sleep(GONE_SECONDS)
            stamp = await asyncio.to_thread(self._look)
            if stamp == self._stamp:
                return
        self._stamp = stamp
        await self._reloaded()

    async def _reloaded(self) -> None:
        try:
            await self._reloader.reload(only_if_changed=True)
        except SubletError:
            return  # told already
        except Exception:
            # What held before goes on to hold.
            log.exception("configuration can't be read")

    def _files(self) -> Iterable[Path]:
        yield self._reloader.source.file
        yield self._reloader.policy_file
        for root in self._reloader.module_roots:
            for directory in _inside(root):
                yield from sorted(_inside(directory)) or [directory]

    def _look(self) -> Stamp:
        """Return what tells one state of all files from another."""
        found: list[tuple[str, int, int, int]] = []
        for path in self._files():
            try:
                seen = path.stat()
            except OSError:
                continue
            # The time of the last change to the inode: unlike that of its content, nobody can set it back, and a file
            # that may not be read any more has a new one too.
            found.append((str(path), seen.st_ino, seen.st_ctime_ns, seen.st_size))
        return tuple(sorted(found))

    def _directories(self) -> list[Path]:
        """Return what has to be watched: where files are and would be, also behind links, and above what may go."""
        wanted: set[Path] = set()
        for file in (self._reloader.source.file, self._reloader.policy_file):
            wanted |= {file.parent, file.parent.parent, Path(os.path.realpath(file)).parent}
        for root in self._reloader.module_roots:
            wanted |= {root, root.parent, Path(os.path.realpath(root)), *_inside(root)}
        there = {_nearest(path) for path in wanted}
        # One by another name can't be watched; what is in it is found by looking.
        self._unwatchable = tuple(clean_name(str(path)) for path in sorted(there) if not _is_utf8(str(path)))
        return sorted(path for path in there if _is_utf8(str(path)))[:MAX_WATCHED]


def _inside(directory: Path) -> list[Path]:
    try:
        return [directory / name for name in os.listdir(directory)][:MAX_WATCHED]
    except OSError:
        return []


def _unreadable(directories: Sequence[Path]) -> tuple[str, ...]:
    """Return the first name in each directory that is not UTF-8, safe to show. Blocks."""
    found = []
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                names = (entry.name for entry in itertools.islice(entries, MAX_NAMES))
                bad = next((name for name in names if not _is_utf8(name)), None)
        except OSError:
            continue
        if bad is not None:
            found.append(clean_name(str(directory / bad)))
    return tuple(found[:MAX_UNREADABLE])


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _nearest(path: Path) -> Path:
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path
