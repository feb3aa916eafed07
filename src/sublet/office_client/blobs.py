"""Large binaries: those of results, which an Agent fetches piece by piece, and those that it uploads.

Results are kept in memory, the newest up to a bound, under handles that nobody guesses. Uploads land in the one
directory that the owner has named, under names that are made here; without a directory none is taken.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import secrets
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, TypeGuard

from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.answers import Answer
from sublet.protocol.offices.names import BLOB_NOT_ACCESSIBLE, BLOB_WRITE_FAILED
from sublet.protocol.patterns import Pattern

INLINE_BYTES: Final = 32 << 10
"""What a result may hold as it is; a larger binary of it gets a handle."""
KEPT_BYTES: Final = 64 << 20
KEPT_BLOBS: Final = 256
CHUNK_BYTES: Final = 256 << 10
MAX_UPLOADS: Final = 4
"""At one time."""
MAX_UPLOAD_BYTES: Final = 100 << 20
MAX_LANDED_BYTES: Final = 1 << 30
"""Of all uploads together, while it runs: nobody fills a disk from afar."""
IDLE_SECONDS: Final = 120.0
_SHA256 = Pattern(r"[0-9a-f]{64}\Z")
_UNSAFE = Pattern(r"[^A-Za-z0-9._-]+")
_HINT_CHARS: Final = 64
_DECLARED: Final = ("total_size", "sha256", "name_hint")


@dataclass(frozen=True, slots=True)
class _Blob:
    data: bytes
    mime_type: str
    sha256: str


class BlobShelf:
    """Binaries of results, of which the newest are kept."""

    def __init__(self) -> None:
        self._blobs: OrderedDict[str, _Blob] = OrderedDict()
        self._bytes = 0

    def put(self, data: bytes, mime_type: str) -> tuple[str, str]:
        """Keep a binary and return its handle and its SHA-256."""
        blob = _Blob(data, mime_type, hashlib.sha256(data).hexdigest())
        handle = secrets.token_urlsafe(24)
        self._blobs[handle] = blob
        self._bytes += len(data)
        while self._bytes > KEPT_BYTES or len(self._blobs) > KEPT_BLOBS:
            self._bytes -= len(self._blobs.popitem(last=False)[1].data)
        return handle, blob.sha256

    def piece(self, asked: Mapping[str, JsonValue], req_id: str) -> Answer:
        """Return the piece that ``client:get_blob`` asks for, or the error that says why not."""
        handle, offset = asked.get("blob_handle"), asked.get("chunk_offset", 0)
        most = asked.get("max_chunk_bytes", CHUNK_BYTES)
        if not isinstance(handle, str):
            return _not_accessible("invalid_handle")
        blob = self._blobs.get(handle)
        if blob is None:
            return _not_accessible("gone")
        if not _is_count(offset) or offset > len(blob.data):
            return _not_accessible("range")
        size = min(most, CHUNK_BYTES) if _is_count(most) and most > 0 else CHUNK_BYTES
        piece = blob.data[offset : offset + size]
        return {
            "blob_handle": handle,
            "mime_type": blob.mime_type,
            "total_size": len(blob.data),
            "sha256": blob.sha256,
            "chunk_offset": offset,
            "eof": offset + len(piece) == len(blob.data),
            "blob": base64.b64encode(piece).decode("ascii"),
            "req_id": req_id,
        }


@dataclass(slots=True)
class _Upload:
    id: str
    name: str
    size: int
    sha256: str
    file: IO[bytes]
    active_at: float
    received: int = 0
    hash: Any = field(default_factory=hashlib.sha256)


class Landing:
    """Takes uploads.

    Args:
        directory: where they land; None takes none.
        clock: returns monotonic seconds.
    """

    def __init__(self, directory: Path | None, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._clock = clock
        self._uploads: dict[str, _Upload] = {}
        self._landed = 0
        self._one_by_one = asyncio.Lock()
        self._at_work = threading.Lock()

    async def take(self, asked: Mapping[str, JsonValue], req_id: str) -> Answer:
        """Take one piece of ``client:put_blob``, and return its acknowledgement, or why it is refused."""
        async with self._one_by_one:
            try:
                return await asyncio.to_thread(self._take, asked, req_id)
            except OSError as error:
                return _failed("io_error", f"it can't be written: {error.strerror or 'the disk fails'}")

    def close(self) -> None:
        """Drop what has not come whole."""
        with self._at_work:
            for upload in list(self._uploads.values()):
                self._drop(upload)

    def _take(self, asked: Mapping[str, JsonValue], req_id: str) -> Answer:
        # A disk may be so slow that whoever has asked is gone: what goes on then is not to be met by the next piece.
        with self._at_work:
            self._expire()
            return self._taken(asked, req_id)

    def _taken(self, asked: Mapping[str, JsonValue], req_id: str) -> Answer:
        upload_id = asked.get("upload_id")
        if upload_id is None:
            begun = self._begin(asked)
            if not isinstance(begun, _Upload):
                return begun
            upload = begun
        else:
            found = self._uploads.get(upload_id) if isinstance(upload_id, str) else None
            if found is None:
                return _failed("invalid_upload", "there is no such upload, or it was idle for too long")
            if any(name in asked for name in _DECLARED):
                return _failed("invalid_declaration", "only the first piece says what the whole is")
            upload = found
        try:
            return self._append(upload, asked, req_id)
        except OSError:
            self._drop(upload)
            raise

    def _begin(self, asked: Mapping[str, JsonValue]) -> _Upload | Answer:
        size, digest, hint = asked.get("total_size"), asked.get("sha256"), asked.get("name_hint")
        if self._directory is None:
            return _failed("forbidden", "this computer takes no uploads")
        if not _is_count(size) or size < 1:
            return _failed("invalid_declaration", "total_size is no number of bytes")
        if not isinstance(digest, str) or _SHA256.match(digest) is None:
            return _failed("invalid_declaration", "sha256 is none")
        promised = sum(one.size for one in self._uploads.values())
        if size > MAX_UPLOAD_BYTES or self._landed + promised + size > MAX_LANDED_BYTES:
            return _failed("too_large", "it is larger than this computer takes")
        if len(self._uploads) >= MAX_UPLOADS:
            return _failed("busy", f"{MAX_UPLOADS} uploads are under way")
        upload_id = secrets.token_hex(16)
        # Without a name, so that nothing is left of it, however it ends.
        file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - it lives as long as the upload
        upload = _Upload(upload_id, _name(upload_id, hint), size, digest, file, self._clock())
        self._uploads[upload_id] = upload
        return upload

    def _append(self, upload: _Upload, asked: Mapping[str, JsonValue], req_id: str) -> Answer:
        offset, blob, last = asked.get("chunk_offset"), asked.get("blob"), asked.get("eof") is True
        if not _is_count(offset) or offset != upload.received:
            return _failed("range", f"the next piece begins at {upload.received}")
        try:
            piece = base64.b64decode(blob, validate=True) if isinstance(blob, str) else None
        except (binascii.Error, ValueError):
            piece = None
        if piece is None:
            return _failed("invalid_declaration", "blob is no base64")
        end = offset + len(piece)
        if end > upload.size or (last and end != upload.size):
            self._drop(upload)
            return _failed("range", f"{upload.size} bytes were declared")
        upload.file.write(piece)
        upload.hash.update(piece)
        upload.received, upload.active_at = end, self._clock()
        answer: Answer = {"upload_id": upload.id, "chunk_offset": offset, "req_id": req_id}
        if not last:
            return answer
        if upload.hash.hexdigest() != upload.sha256:
            self._drop(upload)
            return _failed("integrity", "its SHA-256 is another one")
        path = self._land(upload)
        return {**answer, "landing_path": str(path), "total_size": upload.size, "sha256": upload.sha256}

    def _land(self, upload: _Upload) -> Path:
        assert self._directory is not None
        path = self._directory / upload.name
        upload.file.flush()
        upload.file.seek(0)
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(made, "wb") as landed:
                shutil.copyfileobj(upload.file, landed)
        except BaseException:
            path.unlink(missing_ok=True)  # half of it, which nobody has counted
            raise
        self._landed += upload.size
        self._drop(upload)
        return path

    def _expire(self) -> None:
        for upload in [one for one in self._uploads.values() if self._clock() - one.active_at > IDLE_SECONDS]:
            self._drop(upload)

    def _drop(self, upload: _Upload) -> None:
        self._uploads.pop(upload.id, None)
        upload.file.close()


def _name(upload_id: str, hint: JsonValue) -> str:
    """Return the name of a file: ours, with what is harmless of the one that was proposed behind it."""
    safe = _UNSAFE.sub("_", hint[:_HINT_CHARS]).strip("._-") if isinstance(hint, str) else ""
    return f"{upload_id}_{safe}" if safe else upload_id


def _is_count(value: JsonValue) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _not_accessible(reason: str) -> Answer:
    return {"code": BLOB_NOT_ACCESSIBLE, "message": "Blob not accessible", "details": {"reason": reason}}


def _failed(reason: str, message: str) -> Answer:
    return {"code": BLOB_WRITE_FAILED, "message": message, "details": {"reason": reason}}
