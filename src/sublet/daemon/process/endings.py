"""Everything that ends a running daemon, as one list; a failure of anything else is survived (``sublet.tasks``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

import structlog

from sublet.protocol.errors import LocalCode, SubletError
from sublet.stop_time import StopTime

log = structlog.get_logger(__name__)


class Ending(Enum):
    """Why a running daemon ends: whether that is a failure, what happened, and what its owner can do."""

    ASKED = (False, "it was asked to stop", "")
    """A signal, ``sublet down``, or the end of the terminal in which it runs."""
    STATE_GONE = (
        True,
        "its state directory was removed or replaced, so nothing that it writes would be found again",
        "Put it back, or choose another place with SUBLET_HOME, and start again: sublet up",
    )
    STORE_BROKEN = (
        True,
        "the thread that writes its store has failed, so nothing can be promised any more",
        "What was acknowledged is safe. Start again: sublet up. The log tells what failed.",
    )

    @property
    def failed(self) -> bool:
        """Whether the daemon ends with an error."""
        return self.value[0]


class Stop:
    """The one place that a running daemon is ended from.

    Args:
        begun: is called once, when the stop begins, with whether it is for a failure.
    """

    def __init__(self, begun: Callable[[bool], None] = lambda _: None) -> None:
        self.time = StopTime()
        self._begun = begun
        self._asked = asyncio.Event()
        self._why: Ending | None = None

    def ask(self) -> None:
        """End the daemon as its owner wants it."""
        self.now(Ending.ASKED)

    def now(self, why: Ending) -> None:
        """End the daemon; the first reason counts."""
        if self._why is None:
            self._why = why
            self.time.begin()
            self._begun(why.failed)
            if why.failed:
                log.error("the daemon ends", reason=why.value[1])
        self._asked.set()

    async def wait(self) -> None:
        """Wait until the daemon has to end."""
        await self._asked.wait()

    def check(self) -> None:
        """Raise what ended the daemon, where that is a failure.

        Raises:
            SubletError: ``UNAVAILABLE``.
        """
        if self._why is not None and self._why.failed:
            _, what, hint = self._why.value
            raise SubletError(LocalCode.UNAVAILABLE, f"the daemon had to end: {what}", hint)
