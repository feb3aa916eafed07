"""What faces exchange with the daemon about files in rooms (EXT-10)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Base64Bytes, Field, StringConstraints

from sublet.daemon.api.base import Request, View

MAX_FILE_BYTES = 16 << 20
MAX_UPLOAD_BYTES = 24 << 20
"""Of a request that carries a file of the greatest size in base 64."""

BlobHash = Annotated[str, StringConstraints(pattern=r"^(sha256:)?[0-9a-f]{64}$")]


class UploadFile(Request):
    """A file for a room, which a message then comes with."""

    filename: Annotated[str, Field(min_length=1, max_length=255)]
    media_type: Annotated[str, Field(min_length=1, max_length=127, pattern=r"^[\w.+-]+/[\w.+-]+$")]
    data: Annotated[Base64Bytes, Field(max_length=MAX_FILE_BYTES)]


class FetchFile(Request):
    """A file by its hash."""

    blob_hash: BlobHash


class FileView(View):
    """A file that a room has."""

    blob_hash: str
    filename: str
    media_type: str
    size: int


class FileContent(View):
    """What is in a file, in base 64."""

    blob_hash: str
    data: str
