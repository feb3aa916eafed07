"""Operations on files in rooms: putting one in, and having one (EXT-10)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Base64Bytes, Field, StringConstraints

from sublet.daemon.api.base import View
from sublet.daemon.api.operation import Asks, Operation
from sublet.daemon.api.room_fields import OneRoom
from sublet.policy.decision import Action

MAX_FILE_BYTES = 16 << 20
MAX_UPLOAD_BYTES = 24 << 20
"""Of a request that carries a file of the greatest size in base 64."""

BlobHash = Annotated[str, StringConstraints(pattern=r"^(sha256:)?[0-9a-f]{64}$")]


class UploadFile(OneRoom):
    """A file for a room, which a message then comes with."""

    filename: Annotated[str, Field(min_length=1, max_length=255)]
    media_type: Annotated[str, Field(min_length=1, max_length=127, pattern=r"^[\w.+-]+/[\w.+-]+$")]
    data: Annotated[Base64Bytes, Field(max_length=MAX_FILE_BYTES)]

    @property
    def size_bytes(self) -> int:
        """How large the file is."""
        return len(self.data)


class FetchFile(OneRoom):
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


UPLOAD_FILE = Operation(
    "files.upload",
    "POST",
    "/v1/rooms/{room_id}/files",
    UploadFile,
    FileView,
    asks=Asks(Action.ROOM_SEND, "{room_id}", ("size_bytes",)),
    summary="Put a file into a room. A message that comes with it lets the others have it.",
    status=201,
    max_bytes=MAX_UPLOAD_BYTES,
)
FETCH_FILE = Operation(
    "files.fetch",
    "GET",
    "/v1/rooms/{room_id}/files",
    FetchFile,
    FileContent,
    asks=Asks(Action.ROOM_READ, "{room_id}"),
    summary="Return a file of a room, asking peers for it where it is not here.",
)
