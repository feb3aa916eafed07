"""What an SFTP operation gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sublet.workspace.sftp.wire import Reader


@dataclass(frozen=True, slots=True)
class SlowReply:
    """An answer that takes long: ``run`` gives it, in a thread, and touches nothing of the session.

    It must be run, since it holds a descriptor that it closes. Where it returns nothing, ``finish`` gives the answer,
    on the loop, unless the session has ended meanwhile.
    """

    run: Callable[[], bytes]
    finish: Callable[[], bytes] | None = None

    def answer(self) -> bytes:
        """Do all of it at once and return the answer."""
        return self.run() or (self.finish() if self.finish is not None else b"")


Reply = bytes | SlowReply
Operation = Callable[[int, Reader], Reply]
"""Called with the request's id and its fields from behind the id."""
