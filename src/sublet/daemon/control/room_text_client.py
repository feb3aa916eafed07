"""Typed client of texts that several write: ``RoomTextApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.room_text_models import EditText, ShareText, TextAccess, TextView
from sublet.daemon.control.room_paths import message_path
from sublet.daemon.control.transport import Transport


class RoomTextClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get_text(self, room_id: str, ref_id: str) -> TextView:
        """Return a text as it is."""
        return await self._transport.fetch(TextView, "GET", f"{message_path(room_id, ref_id)}/text")

    async def edit_text(self, room_id: str, ref_id: str, request: EditText) -> TextView:
        """Change a text where nobody has changed it since it was read."""
        path = f"{message_path(room_id, ref_id)}/text"
        return await self._transport.fetch(TextView, "PATCH", path, body=request)

    async def get_access(self, room_id: str, ref_id: str) -> TextAccess:
        """Return who may write into a message."""
        return await self._transport.fetch(TextAccess, "GET", f"{message_path(room_id, ref_id)}/access")

    async def share_text(self, room_id: str, ref_id: str, request: ShareText) -> TextAccess:
        """Let others write into a message of the caller."""
        path = f"{message_path(room_id, ref_id)}/access"
        return await self._transport.fetch(TextAccess, "POST", path, body=request)
