"""What an agent needs to talk, as faces call it. Every method asks policy; failures are ``SubletError``."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.talk_models import (
    Follow,
    News,
    Reach,
    Reached,
    ReadTalk,
    Said,
    Say,
    SetWatch,
    TalkMessage,
    TalkPage,
    TalkRoom,
    UnsetWatch,
    Watches,
)
from sublet.policy.model import Subject


class TalkApi(Protocol):
    """Talking as the caller's own entity, whatever a request says."""

    async def speaks_as(self, caller: Subject) -> str:
        """Return the caller's own entity."""

    async def reach(self, request: Reach, caller: Subject) -> Reached:
        """Return the room of an address."""

    async def say(self, request: Say, caller: Subject) -> Said:
        """Say something; a direct conversation is found or opened. It is durable when this returns."""

    async def read_page(self, request: ReadTalk, caller: Subject) -> TalkPage:
        """Return a page of what was said."""

    async def read_message(self, room: str, ref_id: str, caller: Subject) -> TalkMessage:
        """Return one message."""

    async def read_attachment(self, room: str, ref_id: str, caller: Subject) -> TalkMessage:
        """Return a message with the text of the file that it comes with in place of its own."""

    async def talk_rooms(self, caller: Subject) -> list[TalkRoom]:
        """Return the rooms that the caller may read, those with unread messages first."""

    async def talk_room(self, room: str, caller: Subject) -> TalkRoom:
        """Return one of them, by id, name or whom it is with."""

    async def news(self, request: Follow, caller: Subject) -> News:
        """Return what others have done, waiting for it where it is told to."""

    async def newest(self, caller: Subject) -> int:
        """Return the cursor after all that has happened."""

    async def set_watch(self, request: SetWatch, caller: Subject) -> Watches:
        """Put a watch, and return all."""

    async def unset_watch(self, request: UnsetWatch, caller: Subject) -> Watches:
        """End a watch, and return the others."""

    async def watches(self, caller: Subject) -> Watches:
        """Return the caller's watches."""
