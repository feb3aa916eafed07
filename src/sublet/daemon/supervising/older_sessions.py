"""Takes over the sessions of an older map file, once in the life of a state directory (SuperAgent 4.2)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from sublet.daemon.times import rfc3339
from sublet.disk.durable import write_durably
from sublet.protocol.errors import SubletError
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.sessions.older_map import OLDER_MAP_FILE, read_older_map

TAKEN_OVER: Final = ".older-map-taken-over"
"""Beside the sessions, once an older map was read: it is read once, whatever becomes of it."""

log = structlog.get_logger(__name__)


class OlderSessions:
    """Looks for an older map where one may lie.

    Args:
        directories: where it may lie, the first one that has it counts.
        kept: the directory of the sessions, which notes that it was read.
        sessions: takes its bindings over.
    """

    def __init__(self, directories: Sequence[Path], kept: Path, sessions: SessionControl) -> None:
        self._files = [directory / OLDER_MAP_FILE for directory in directories]
        self._marker = kept / TAKEN_OVER
        self._sessions = sessions

    async def take_over(self) -> None:
        """Take over what an older map binds, unless that was done; a failure is told, and no reason not to start."""
        for file in self._files:
            try:
                if await asyncio.to_thread(self._marker.exists):
                    return
                older = await asyncio.to_thread(read_older_map, file, rfc3339())
                if older is None:
                    continue
                taken = await self._sessions.take_over(older)
                await asyncio.to_thread(_mark, self._marker, file)
                log.info("an older session map is taken over", bindings=taken, skipped=older.skipped)
            except (OSError, SubletError) as error:
                log.error("an older session map is not taken over", reason=str(error))


def _mark(marker: Path, source: Path) -> None:
    marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(marker, hashlib.sha256(source.read_bytes()).hexdigest().encode() + b"\n")
