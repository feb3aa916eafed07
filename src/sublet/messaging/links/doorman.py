"""Who may have a link beyond what keys say: a peer may run twice, from its home and from a copy of it."""

from __future__ import annotations

from typing import Protocol


class Doorman(Protocol):
    """Knows from which home each peer may have a link; called from the thread of the links."""

    def admits(self, peer: bytes, home: str) -> bool:
        """Tell whether a peer, by its key, is let in from the home that it names."""

    def opened(self, peer: bytes, home: str) -> None:
        """Note a link."""

    def ended(self, peer: bytes, home: str) -> None:
        """Note the end of a link."""


class Everybody:
    """Lets in whoever has proven a pinned key."""

    def admits(self, peer: bytes, home: str) -> bool:
        """``Doorman.admits``."""
        return True

    def opened(self, peer: bytes, home: str) -> None:
        """Note nothing."""

    def ended(self, peer: bytes, home: str) -> None:
        """Note nothing."""
