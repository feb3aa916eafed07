"""Typed client of files in rooms: ``RoomFileApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.room_file_models import FetchFile, FileContent, FileView, UploadFile
from sublet.daemon.control.room_paths import room_path
from sublet.daemon.control.transport import Transport


class RoomFileClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def upload_file(self, room_id: str, request: UploadFile) -> FileView:
        """Put a file into a room."""
        return await self._transport.fetch(FileView, "POST", f"{room_path(room_id)}/files", body=request)

    async def fetch_file(self, room_id: str, request: FetchFile) -> FileContent:
        """Return a file of a room."""
        query = {"blob_hash": request.blob_hash}
        return await self._transport.fetch(FileContent, "GET", f"{room_path(room_id)}/files", query)
