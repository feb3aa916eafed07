"""What is done to messages that are there, as faces call it. Every method asks policy; failures are ``SubletError``."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.room_mark_models import EditMessage, MessageChange, MessageVersion, Moderate, React
from sublet.daemon.api.room_models import MessageView
from sublet.policy.model import Subject


class RoomMarkApi(Protocol):
    """Reactions, edits and decisions, as the entity of the caller."""

    async def get_message(self, room_id: str, ref_id: str, caller: Subject) -> MessageView:
        """Return one message; that marks nothing as read."""

    async def add_reaction(self, room_id: str, ref_id: str, request: React, caller: Subject) -> MessageChange:
        """React to a message."""

    async def remove_reaction(self, room_id: str, ref_id: str, request: React, caller: Subject) -> MessageChange:
        """Take a reaction back."""

    async def edit_message(self, room_id: str, ref_id: str, request: EditMessage, caller: Subject) -> MessageChange:
        """Let one's own message say something else."""

    async def list_versions(self, room_id: str, ref_id: str, caller: Subject) -> list[MessageVersion]:
        """Return what a message has said, the first version first."""

    async def delete_message(self, room_id: str, ref_id: str, caller: Subject) -> MessageChange:
        """Delete one's own message."""

    async def moderate_message(self, room_id: str, ref_id: str, request: Moderate, caller: Subject) -> MessageChange:
        """Take a message down, pin it, or pin it no longer."""
