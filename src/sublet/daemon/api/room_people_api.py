"""People in rooms, as faces call it. Every method asks policy; failures are ``SubletError``."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.room_models import RoomChange
from sublet.daemon.api.room_people_models import (
    FindProfile,
    MarkRead,
    ProfileView,
    ReadingView,
    SearchProfiles,
    UpdateProfile,
)
from sublet.policy.model import Subject


class RoomPeopleApi(Protocol):
    """Profiles, and how far members have read, as the entity of the caller."""

    async def get_profile(self, request: FindProfile, caller: Subject) -> ProfileView:
        """Return a profile."""

    async def update_profile(self, request: UpdateProfile, caller: Subject) -> ProfileView:
        """Change the caller's own profile, and return it."""

    async def search_profiles(self, request: SearchProfiles, caller: Subject) -> list[ProfileView]:
        """Return the profiles that hold all words of a query."""

    async def mark_read(self, room_id: str, request: MarkRead, caller: Subject) -> RoomChange:
        """Say that the caller has read a room up to a message."""

    async def get_reading(self, room_id: str, caller: Subject) -> ReadingView:
        """Return how much is unread, and how far each member has read."""
