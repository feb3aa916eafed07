"""``federation.toml`` as it stands: read at the start, and again where it has changed; a bad one changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import structlog

from sublet.daemon.tasks.background import in_background
from sublet.federation.settings import Settings, read_settings
from sublet.protocol.errors import SubletError

LOOK_SECONDS = 5.0
"""How often it is looked whether the file has changed."""

log = structlog.get_logger(__name__)


class SettingsFile:
    """What the file says.

    Args:
        path: of the file, which need not be there.
        settings: as they were read at the start.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self._path = path
        self._settings = settings
        self._stamp = _stamp(path)
        self.remark = ""
        """What is wrong with the file, while settings of before hold; empty where nothing is."""

    @classmethod
    async def load(cls, path: Path) -> SettingsFile:
        """Read the file.

        Raises:
            SubletError: ``INVALID_ARGUMENT``, naming file, line and key; ``UNAVAILABLE`` where it can't be read.
        """
        return await in_background(lambda: cls(path, read_settings(path)))

    def now(self) -> Settings:
        """Return the settings that hold now."""
        return self._settings

    async def watch(self, changed: Callable[[], None]) -> None:
        """Read the file again where it has changed, until cancelled.

        Args:
            changed: called where other settings hold.
        """
        while True:
            await anyio.sleep(LOOK_SECONDS)
            if await in_background(self._look):
                changed()

    def _look(self) -> bool:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._settings = read_settings(self._path)
        except SubletError as error:
            self.remark = f"what was read before holds: {error.message}"
            log.error("federation.toml can't be used, so what was read before holds", reason=error.message)
            return False
        self.remark = ""
        log.info("federation.toml was read anew")
        return True


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
