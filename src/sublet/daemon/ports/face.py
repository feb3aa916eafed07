"""What every face is to the daemon that serves it."""

from __future__ import annotations

from typing import Protocol


class Face(Protocol):
    """A face that lives in the daemon process; the composition root makes it and serves it."""

    @property
    def address(self) -> str:
        """Where it is reached, once ``start`` has returned."""

    async def start(self) -> None:
        """Bind; after this returns, callers are served.

        Raises:
            SubletError: ``UNAVAILABLE`` where it cannot bind.
        """

    async def serve(self) -> None:
        """Serve until cancelled."""

    def release(self) -> None:
        """Close what ``start`` has bound, whatever became of ``serve``; another face may take its place then."""
