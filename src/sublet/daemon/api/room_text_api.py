"""Texts that several write, as faces call them. Every method asks policy; failures are ``SubletError``."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.room_text_models import EditText, ShareText, TextAccess, TextView
from sublet.policy.model import Subject


class RoomTextApi(Protocol):
    """Texts of several, as the entity of the caller."""

    async def get_text(self, room_id: str, ref_id: str, caller: Subject) -> TextView:
        """Return a text as it is, with who may write into it."""

    async def edit_text(self, room_id: str, ref_id: str, request: EditText, caller: Subject) -> TextView:
        """Change a text where nobody has changed it since it was read, and return it."""

    async def get_access(self, room_id: str, ref_id: str, caller: Subject) -> TextAccess:
        """Return who may write into a message."""

    async def share_text(self, room_id: str, ref_id: str, request: ShareText, caller: Subject) -> TextAccess:
        """Let others write into a message of the caller, and return who may."""
