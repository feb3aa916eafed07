"""Who is in a room, on the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.room_member_api import RoomMemberApi
from sublet.daemon.api.room_member_models import ConfigureRoom, DeclineKnock, Knock, RemoveMember
from sublet.daemon.operations.answers import Endpoint, answer, who
from sublet.daemon.operations.reading import read_body


class RoomMemberArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: RoomMemberApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("PATCH", "/v1/rooms/{id}", self._configure),
            ("POST", "/v1/rooms/{id}/knock", self._knock),
            ("POST", "/v1/rooms/{id}/decline", self._decline),
            ("POST", "/v1/rooms/{id}/kick", self._kick),
            ("POST", "/v1/rooms/{id}/ban", self._ban),
            ("POST", "/v1/rooms/{id}/unban", self._unban),
        ]

    async def _configure(self, request: Request) -> Response:
        body = await read_body(request, ConfigureRoom)
        return answer(await self._api.configure_room(request.path_params["id"], body, who(request)))

    async def _knock(self, request: Request) -> Response:
        body = await read_body(request, Knock)
        return answer(await self._api.knock_at_room(request.path_params["id"], body, who(request)))

    async def _decline(self, request: Request) -> Response:
        body = await read_body(request, DeclineKnock)
        return answer(await self._api.decline_knock(request.path_params["id"], body, who(request)))

    async def _kick(self, request: Request) -> Response:
        body = await read_body(request, RemoveMember)
        return answer(await self._api.kick_member(request.path_params["id"], body, who(request)))

    async def _ban(self, request: Request) -> Response:
        body = await read_body(request, RemoveMember)
        return answer(await self._api.ban_entity(request.path_params["id"], body, who(request)))

    async def _unban(self, request: Request) -> Response:
        body = await read_body(request, RemoveMember)
        return answer(await self._api.unban_entity(request.path_params["id"], body, who(request)))
