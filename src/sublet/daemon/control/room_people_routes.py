"""People in rooms, on the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_people_api import RoomPeopleApi
from sublet.daemon.api.room_people_models import FindProfile, MarkRead, SearchProfiles, UpdateProfile
from sublet.daemon.operations.answers import Endpoint, answer, answers, who
from sublet.daemon.operations.reading import read_body, read_query


class RoomPeopleArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: RoomPeopleApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/profiles", self._search),
            ("GET", "/v1/profile", self._get),
            ("PATCH", "/v1/profile", self._update),
            ("GET", "/v1/rooms/{id}/reading", self._reading),
            ("POST", "/v1/rooms/{id}/reading", self._mark_read),
        ]

    async def _search(self, request: Request) -> Response:
        query = read_query(request, SearchProfiles)
        return answers(await self._api.search_profiles(query, who(request)))

    async def _get(self, request: Request) -> Response:
        query = read_query(request, FindProfile)
        return answer(await self._api.get_profile(query, who(request)))

    async def _update(self, request: Request) -> Response:
        body = await read_body(request, UpdateProfile)
        return answer(await self._api.update_profile(body, who(request)))

    async def _reading(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.get_reading(request.path_params["id"], who(request)))

    async def _mark_read(self, request: Request) -> Response:
        body = await read_body(request, MarkRead)
        return answer(await self._api.mark_read(request.path_params["id"], body, who(request)))
