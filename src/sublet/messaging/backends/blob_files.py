"""Blobs as files, each under its own hash and nothing else, so that no name from elsewhere becomes a path."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sublet.disk.durable import write_whole
from sublet.messaging.ports.blobs import BlobRoomError
from sublet.protocol.ezagent.blob import MAX_KEPT_BYTES

_DIGITS = frozenset("0123456789abcdef")


class FileBlobs:
    """Implements ``BlobStore``.

    Args:
        directory: private; made with the first blob.
        max_bytes: what all blobs may take together.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes

    def put(self, data: bytes) -> str:
        """``BlobStore.put``."""
        digest = hashlib.sha256(data).hexdigest()
        if self.size(digest) is not None:
            return digest
        if sum(size for _, size, _ in self.all()) + len(data) > self._max_bytes:
            raise BlobRoomError(f"the files of rooms may take {self._max_bytes >> 20} MiB together")
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._directory / digest, data)
        return digest

    def size(self, digest: str) -> int | None:
        """``BlobStore.size``."""
        with suppress(OSError):
            return self._path(digest).stat().st_size
        return None

    def read(self, digest: str, offset: int, length: int) -> bytes:
        """``BlobStore.read``."""
        with self._path(digest).open("rb") as file:
            file.seek(offset)
            return file.read(min(length, MAX_KEPT_BYTES))

    def all(self) -> Iterator[tuple[str, int, float]]:
        """``BlobStore.all``."""
        if not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            if _is_digest(path.name):
                with suppress(OSError):
                    status = path.stat()
                    yield path.name, status.st_size, max(0.0, time.time() - status.st_mtime)

    def drop(self, digest: str) -> None:
        """``BlobStore.drop``."""
        with suppress(OSError):  # what can't be removed keeps none of the others, and is looked at again
            self._path(digest).unlink()

    def _path(self, digest: str) -> Path:
        if not _is_digest(digest):
            raise ValueError("not the hash of a blob")
        return self._directory / digest


def _is_digest(text: str) -> bool:
    return len(text) == 64 and set(text) <= _DIGITS
