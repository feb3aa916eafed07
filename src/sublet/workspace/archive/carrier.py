"""Brings a delegator's view as a tar stream and takes the changes back, where nothing can be mounted (DESIGN 4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import anyio
import asyncssh

from sublet.workspace.archive.client import failed
from sublet.workspace.archive.tar_format import TarLimits
from sublet.workspace.archive.unpacked import UnpackedView
from sublet.workspace.work_dirs import WorkDirs

MAX_THREADS: Final = 4
"""Views that are unpacked, compared or packed at the same time, in threads of their own, since that takes long."""


class ArchiveCarrier:
    """The transport ``archive`` on the executor's side; a ``Carrier``.

    Args:
        root: the one directory below which views are unpacked; private to this user.
        limits: what may be unpacked for one delegation.
    """

    def __init__(self, root: Path, limits: Callable[[], TarLimits]) -> None:
        self._dirs = WorkDirs(root)
        self._limits = limits
        self._threads = ThreadPoolExecutor(MAX_THREADS, "carrier")

    def reserve(self, delegation_id: str) -> Path:
        """``Carrier.reserve``."""
        return self._dirs.reserve(delegation_id)

    def release(self, place: Path) -> bool:
        """``Carrier.release``."""
        return self._dirs.release(place)

    async def attach(
        self, place: Path, connection: asyncssh.SSHClientConnection, remote_path: str = "/"
    ) -> UnpackedView:
        """``Carrier.attach``."""
        if remote_path != "/":
            raise failed("only the whole view can be archived")
        view = self._view(place, await asyncio.to_thread(self._dirs.open, place))
        try:
            await view.fetch(connection, self._limits())
        except BaseException:
            with anyio.CancelScope(shield=True):
                await view.discard()
            raise
        return view

    def reap(self) -> list[str]:
        """``Carrier.reap``."""
        return self._dirs.reap()

    def _view(self, place: Path, descriptor: int) -> UnpackedView:
        """Return the view that ``place``, open as ``descriptor``, becomes."""
        return UnpackedView(place, self._dirs, descriptor, self._threads)
