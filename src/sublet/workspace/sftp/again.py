"""A request that can be decided only once something was found out in a thread, and is then done once more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.sftp.reply import SlowReply, ThreadWork

MAX_LOOKS: Final = 8
"""How often a request waits; beyond that, what it is about changes all the time."""


@dataclass(slots=True)
class Again:
    """Where the request lies in ``data``, and what it waits for."""

    data: bytes
    start: int
    end: int
    looks: int = 0
    _unknown: NotKnownYet | None = None

    def wait_for(self, unknown: NotKnownYet) -> bool:
        """Take note of what has to be found out; False where that has been done often enough."""
        self.looks += 1
        if self.looks > MAX_LOOKS:
            unknown.drop()
            return False
        self._unknown = unknown
        return True

    def reply(self) -> SlowReply | None:
        """Return what is to be done in a thread now, or None where the request can be done again."""
        unknown, self._unknown = self._unknown, None
        return SlowReply(ThreadWork(_quietly(unknown.learn), unknown.drop)) if unknown is not None else None

    def drop(self) -> None:
        """Let go of what nobody will find out."""
        if self._unknown is not None:
            self._unknown.drop()


def _quietly(learn: Callable[[], None]) -> Callable[[], bytes]:
    def run() -> bytes:
        with suppress(OSError):  # the request will meet it itself
            learn()
        return b""

    return run
