"""What the engine needs besides a database and a network: a place for files; an interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sublet.protocol.errors import LocalCode, SubletError


class BlobRoomError(Exception):
    """There is no room for another blob."""


class BlobStore(Protocol):
    """Keeps blobs by the hash of what is in them: SHA-256 in hexadecimal."""

    def put(self, data: bytes) -> str:
        """Keep a blob, durable when this returns, and return its hash.

        Raises:
            BlobRoomError: all of them would take too much.
            OSError: it can't be written.
        """

    def size(self, digest: str) -> int | None:
        """Return how large a blob is in bytes; None where it is not here."""

    def read(self, digest: str, offset: int, length: int) -> bytes:
        """Return bytes of a blob that is here."""

    def all(self) -> Iterator[tuple[str, int, float]]:
        """Yield hash, size in bytes, and age in seconds of every blob."""

    def drop(self, digest: str) -> None:
        """Forget a blob."""


def keep(blobs: BlobStore, data: bytes) -> str:
    """Keep a file under its hash, and return that, in hex.

    Raises:
        SubletError: ``UNAVAILABLE``: there is no space for it.
    """
    try:
        return blobs.put(data)
    except (BlobRoomError, OSError) as error:
        raise SubletError(LocalCode.UNAVAILABLE, f"the file can't be kept: {error}", "Make room for it.") from None
