"""Files in rooms, as faces call it. Every method asks policy; failures are ``SubletError``."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.room_file_models import FetchFile, FileContent, FileView, UploadFile
from sublet.policy.model import Subject


class RoomFileApi(Protocol):
    """Files, as the entity of the caller."""

    async def upload_file(self, room_id: str, request: UploadFile, caller: Subject) -> FileView:
        """Put a file into a room; a message that comes with it lets the others have it."""

    async def fetch_file(self, room_id: str, request: FetchFile, caller: Subject) -> FileContent:
        """Return a file of a room, asking peers for it where it is not here."""
