"""``RoomFileApi``: files in rooms."""

from __future__ import annotations

import base64

from sublet.daemon.api.room_file_models import FetchFile, FileContent, FileView, UploadFile
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations.asking import operations
from sublet.daemon.rooms.speaking import Speaking
from sublet.policy.model import Action, Subject


@operations
class RoomFileService:
    """Implements ``RoomFileApi``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking

    async def upload_file(self, room_id: str, request: UploadFile, caller: Subject) -> FileView:
        """``RoomFileApi.upload_file``."""
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=len(request.data))
        given = {"data": request.data, "media_type": request.media_type, "filename": request.filename}
        return FileView.model_validate(await self._speaking.call(caller, "media.upload", room_id=room_id, **given))

    async def fetch_file(self, room_id: str, request: FetchFile, caller: Subject) -> FileContent:
        """``RoomFileApi.fetch_file``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        blob_hash = request.blob_hash
        found = await self._speaking.call(caller, "media.get", room_id=room_id, blob_hash=blob_hash)
        return FileContent(blob_hash=blob_hash, data=base64.b64encode(found).decode())
