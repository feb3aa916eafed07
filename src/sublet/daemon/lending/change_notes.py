"""Tells what others change in a lent directory while the lease lasts: as events, and in the executor's view (case C13).

A file watcher in the mount sees nothing of it: the kernel tells of its own changes only. The agent reads
``/meta/changes.txt`` instead, or looks again itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import anyio
import structlog

from sublet.daemon.storage.journal import Journal
from sublet.daemon.tasks.background import in_background
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind
from sublet.workspace.view.change_watch import Changed, ChangeWatch
from sublet.workspace.view.walk import WalkOverrunError

CHANGES_FILE = "changes.txt"
MAX_TOLD = 50
"""Changes that one event names; it counts the others."""
MAX_EVENTS = 1_000
"""Events of one lease; after that only the view's own list goes on."""
MAX_LINES = 500
MAX_LINE_CHARS = 1_000
_HEAD = (
    "# What others changed in the lent directory since the work began, the newest last.\n"
    "# inotify does not report it here: look into this file from time to time.\n"
)

log = structlog.get_logger(__name__)


class ChangeNotes:
    """Looks and tells until cancelled.

    Args:
        journal: gets an event for each look that found something.
        delegation_id: whose directory it is.
        watch: looks.
        show: puts the list into the executor's view.
    """

    def __init__(
        self, journal: Journal, delegation_id: str, watch: ChangeWatch, show: Callable[[str, bytes], None]
    ) -> None:
        self._journal = journal
        self._id = delegation_id
        self._watch = watch
        self._show = show
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._events = 0

    async def serve(self) -> None:
        """Look again and again; ends by itself where there is too much to look at, and says so."""
        self._show(CHANGES_FILE, _HEAD.encode())
        while True:
            try:
                found = await in_background(self._watch.look)
            except (WalkOverrunError, OSError) as error:
                log.warning("a lent directory is not watched any more", delegation_id=self._id, reason=str(error))
                self._lines.append(f"# not watched any more: {error}"[:MAX_LINE_CHARS])
                self._show(CHANGES_FILE, self._text())
                await self._journal.events.append_event(
                    EventKind.WORKSPACE_CHANGED, self._id, {"changes": [], "more": 0, "stopped": str(error)}
                )
                return
            if found:
                await self._tell(found)
            await anyio.sleep(self._watch.pause)

    async def _tell(self, found: Sequence[Changed]) -> None:
        self._lines.extend(f"{one.change} {one.path}"[:MAX_LINE_CHARS] for one in found[-MAX_LINES:])
        self._show(CHANGES_FILE, self._text())
        if self._events >= MAX_EVENTS:
            return
        self._events += 1
        told: list[JsonValue] = [{"path": one.path[:MAX_LINE_CHARS], "change": one.change} for one in found[:MAX_TOLD]]
        more = max(0, len(found) - MAX_TOLD)
        await self._journal.events.append_event(EventKind.WORKSPACE_CHANGED, self._id, {"changes": told, "more": more})

    def _text(self) -> bytes:
        return (_HEAD + "".join(f"{line}\n" for line in self._lines)).encode()
