"""Looks from time to time whether the daemon's own databases are sound, so that it never says it is well on a bad one.

They are read beside whoever writes, on another thread, one table at a time. What is wrong is told by ``status``,
``doctor`` and the log, with the way out; nothing is mended here, since nobody else knows what was in them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import structlog

from sublet.migrations import damage

FIRST_LOOK_SECONDS: Final = 3.0
"""After a start, which nothing should make slower."""
LOOK_SECONDS: Final = 6 * 3600.0
PAUSE_SECONDS: Final = 0.1
"""Between two tables."""

log = structlog.get_logger(__name__)


class Soundness:
    """See the module.

    Args:
        databases: the files.
    """

    def __init__(self, databases: Sequence[Path]) -> None:
        self._databases = databases
        self._damaged: dict[Path, str] = {}

    async def serve(self) -> None:
        """Look until cancelled."""
        wait = FIRST_LOOK_SECONDS
        while True:
            await anyio.sleep(wait)
            wait = LOOK_SECONDS
            for path in self._databases:
                await self._look(path)

    def remarks(self) -> list[str]:
        """Return what is damaged, one line each."""
        return [
            f"the database {path.name} is damaged ({why}); make it anew from what can be read: "
            "sublet down, then sublet doctor --repair"
            for path, why in sorted(self._damaged.items())
        ]

    async def _look(self, path: Path) -> None:
        steps = damage.find(path)
        try:
            if not await anyio.to_thread.run_sync(path.exists):
                return
            while True:
                why = await anyio.to_thread.run_sync(next, steps, None, abandon_on_cancel=True)
                if why != "":
                    break
                await anyio.sleep(PAUSE_SECONDS)
        except (OSError, sqlite3.Error) as error:
            log.warning("a database could not be looked at", store=path.name, reason=str(error))
            return
        if why and path not in self._damaged:
            log.error("a database is damaged", store=path.name, reason=why, remedy="sublet doctor --repair")
        if why:
            self._damaged[path] = why
        else:
            self._damaged.pop(path, None)
