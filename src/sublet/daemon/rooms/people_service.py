"""Serves the operations on people in rooms."""

from __future__ import annotations

from sublet.daemon.api.room_fields import OneRoom
from sublet.daemon.api.room_people import (
    GET_PICTURE,
    GET_PROFILE,
    GET_READING,
    MARK_READ,
    SEARCH_PROFILES,
    SET_PICTURE,
    UPDATE_PROFILE,
    FindPicture,
    FindProfile,
    MarkRead,
    PictureView,
    ProfileView,
    ReadingView,
    SearchProfiles,
    SetPicture,
    UpdateProfile,
)
from sublet.daemon.api.rooms import RoomChange
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfRooms
from sublet.messaging.calls import people_calls
from sublet.policy.decision import Subject


class RoomPeopleService(OfRooms):
    """Serves the operations of ``api.room_people``."""

    @serves(GET_PROFILE)
    async def get_profile(self, request: FindProfile, caller: Subject) -> ProfileView:
        return ProfileView.model_validate(
            await self._speaking.call(caller, people_calls.get_profile, entity=request.entity)
        )

    @serves(UPDATE_PROFILE)
    async def update_profile(self, request: UpdateProfile, caller: Subject) -> ProfileView:
        changed = await self._speaking.call(
            caller, people_calls.update_profile, frontmatter=request.fields, body=request.body
        )
        return ProfileView.model_validate(changed)

    @serves(GET_PICTURE)
    async def get_picture(self, request: FindPicture, caller: Subject) -> PictureView:
        found = await self._speaking.call(caller, people_calls.get_picture, entity=request.entity, known=request.known)
        return PictureView.model_validate(found)

    @serves(SET_PICTURE)
    async def set_picture(self, request: SetPicture, caller: Subject) -> ProfileView:
        return ProfileView.model_validate(
            await self._speaking.call(caller, people_calls.set_picture, data=request.data)
        )

    @serves(SEARCH_PROFILES)
    async def search_profiles(self, request: SearchProfiles, caller: Subject) -> list[ProfileView]:
        found = await self._speaking.call(caller, people_calls.search_profiles, query=request.query)
        return [ProfileView.model_validate(one) for one in found]

    @serves(MARK_READ)
    async def mark_read(self, request: MarkRead, caller: Subject) -> RoomChange:
        await self._speaking.call(caller, people_calls.mark_read, room_id=request.room_id, ref_id=request.ref_id)
        return RoomChange(room_id=request.room_id)

    @serves(GET_READING)
    async def get_reading(self, request: OneRoom, caller: Subject) -> ReadingView:
        return ReadingView.model_validate(
            await self._speaking.call(caller, people_calls.get_reading, room_id=request.room_id)
        )
