"""Serves the operations on files in rooms."""

from __future__ import annotations

import base64

from sublet.daemon.api.room_files import FETCH_FILE, UPLOAD_FILE, FetchFile, FileContent, FileView, UploadFile
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfRooms
from sublet.messaging.calls import people_calls
from sublet.policy.decision import Subject


class RoomFileService(OfRooms):
    """Serves the operations of ``api.room_files``."""

    @serves(UPLOAD_FILE)
    async def upload_file(self, request: UploadFile, caller: Subject) -> FileView:
        kept = await self._speaking.call(
            caller,
            people_calls.upload_file,
            room_id=request.room_id,
            data=request.data,
            media_type=request.media_type,
            filename=request.filename,
        )
        return FileView.model_validate(kept)

    @serves(FETCH_FILE)
    async def fetch_file(self, request: FetchFile, caller: Subject) -> FileContent:
        blob_hash = request.blob_hash
        found = await self._speaking.call(caller, people_calls.get_file, room_id=request.room_id, blob_hash=blob_hash)
        return FileContent(blob_hash=blob_hash, data=base64.b64encode(found).decode())
