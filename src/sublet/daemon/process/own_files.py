"""Looks after what the daemon needs of the disk while it runs: its sockets are made again, its state is never guessed.

A session that ends takes its ``XDG_RUNTIME_DIR`` along, and with it the sockets of a daemon that goes on. They are made
again where they were, or below the state directory where that is not possible; the lock file tells clients where.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import structlog

from sublet.daemon.config.paths import Home
from sublet.daemon.process.endings import Ending, Stop
from sublet.daemon.process.kept_face import KeptFace
from sublet.daemon.process.lock import InstanceLock
from sublet.disk.identity import identity_of
from sublet.protocol.errors import SubletError

LOOK_SECONDS: Final = 5.0
STORE: Final = "sublet.db"

log = structlog.get_logger(__name__)


class OwnFiles:
    """Watches over the sockets and the state of a running daemon; ``serve`` must run.

    Args:
        home: whose they are.
        lock: held by this daemon.
        faces: those with a socket in the runtime directory; their addresses are paths.
        stop: ends the daemon where its state is gone.
        moved: told the home with another runtime directory before faces are made anew.
        look_seconds: between two looks.
    """

    def __init__(
        self,
        home: Home,
        lock: InstanceLock,
        faces: Sequence[KeptFace],
        stop: Stop,
        moved: Callable[[Home], None],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._home = home
        self._lock = lock
        self._faces = faces
        self._stop = stop
        self._moved = moved
        self._look_seconds = look_seconds
        self._store = f"{home.state_dir}/{STORE}"
        self._identity = identity_of(self._store)

    async def serve(self) -> None:
        """Look from time to time until cancelled."""
        while True:
            await anyio.sleep(self._look_seconds)
            await self.look()

    async def look(self) -> None:
        """Look once, and mend what can be mended."""
        if not await asyncio.to_thread(self._has_state):
            self._stop.now(Ending.STATE_GONE)
            return
        lost = [face for face in self._faces if face.running and not await asyncio.to_thread(face.is_there)]
        if not lost:
            return
        log.warning("sockets are gone and made again", sockets=[face.address for face in lost])
        home = self._home
        if not await asyncio.to_thread(_made, home):
            # Such as /run/user/1000, which only the system makes.
            home = home.spare()
            if not await asyncio.to_thread(_made, home):
                return
            log.warning("the sockets are in another directory now", directory=home.runtime_dir)
        if home.runtime_dir != self._home.runtime_dir:
            self._home = home
            self._moved(self._home)
            await asyncio.to_thread(self._lock.moved, self._home)
            lost = list(self._faces)
        for face in lost:
            face.make_anew()

    def _has_state(self) -> bool:
        """Tell whether the store is still found by its name, and no other daemon can start beside this one."""
        return identity_of(self._store) == self._identity and self._lock.renew()


def _made(home: Home) -> bool:
    try:
        home.make()
    except SubletError as error:
        log.warning("a directory for sockets can't be made", reason=str(error))
        return False
    return True
