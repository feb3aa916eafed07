"""Notices within a second that a configuration file has changed, however it was written, removed or linked."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import anyio
import structlog

from sublet.daemon.reloading.reloader import Reloader
from sublet.protocol.errors import SubletError

DEBOUNCE_MS: Final = 200
"""Changes that follow each other so closely are one."""
LOOK_AGAIN_MS: Final = 5_000
"""How often is looked without being told, as a watch can be lost."""
GONE_SECONDS: Final = 0.3
"""How long a file that is gone may take to come back before it counts as removed: some editors save that way."""
MAX_WATCHED: Final = 1_024

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
        self._stop = threading.Event()

    async def serve(self) -> None:
        """Watch until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_when_cancelled)
            await self._serve()

    async def _stop_when_cancelled(self) -> None:
        """Call off the thread that waits for changes: a cancellation alone would let it wait to its end."""
        try:
            await anyio.sleep_forever()
        finally:
            self._stop.set()

    async def _serve(self) -> None:
        # What changed between the start of the daemon and this moment is found by the first look.
        self._stamp = await asyncio.to_thread(self._look)
        await self._reloaded()
        while True:
            directories = await asyncio.to_thread(self._directories)
            try:
                await self._watch(directories)
            except (OSError, RuntimeError) as error:
                # A directory that went away meanwhile: the next set of directories is without it.
                log.debug("a watch ended", reason=str(error))
                await anyio.sleep(DEBOUNCE_MS / 1000)
            await self._check()

    async def _watch(self, directories: Sequence[Path]) -> None:
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
            stop_event=self._stop,
        ):
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
        except OSError as error:
            log.error("configuration can't be read", reason=str(error))

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
        return sorted(there)[:MAX_WATCHED]


def _inside(directory: Path) -> list[Path]:
    try:
        return [directory / name for name in os.listdir(directory)][:MAX_WATCHED]
    except OSError:
        return []


def _nearest(path: Path) -> Path:
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path
