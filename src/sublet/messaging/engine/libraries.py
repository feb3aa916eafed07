"""What the engine needs besides a database and a network: a place for files, and merging of texts; interfaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from sublet.protocol.ezagent.yjs.model import Value


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


class SharedText(Protocol):
    """One text that several write, as far as updates were applied."""

    @property
    def value(self) -> str:
        """Return the text."""

    def apply(self, update: bytes) -> None:
        """Take an update of the document; each after what it builds on."""

    def edit(self, client: int, start: int, end: int, insert: str, marks: Mapping[str, Value]) -> bytes:
        """Replace characters, and set keys of the map beside the text; return the one update that does it.

        Args:
            client: the writer's client id.
            start: the first character to take out.
            end: the one after the last.
            insert: what comes in their place.
            marks: keys of the map beside the text; at least one, so that no update only deletes.
        """


class TextLibrary(Protocol):
    """Merges text."""

    def open(self, text_root: str, map_root: str) -> SharedText:
        """Return an empty document with a text and a map under these names."""
