"""The rooms' area of the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_api import RoomApi
from sublet.daemon.api.room_models import CreateRoom, InviteToRoom, ReadMessages, SendMessage, WatchRooms
from sublet.daemon.operations.answers import Endpoint, answer, answers, who
from sublet.daemon.operations.reading import read_body, read_query


class RoomArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: RoomApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/whoami", self._whoami),
            ("GET", "/v1/rooms", self._list),
            ("POST", "/v1/rooms", self._create),
            ("GET", "/v1/rooms/{id}", self._get),
            ("POST", "/v1/rooms/{id}/invite", self._invite),
            ("POST", "/v1/rooms/{id}/join", self._join),
            ("POST", "/v1/rooms/{id}/leave", self._leave),
            ("POST", "/v1/rooms/{id}/messages", self._send),
            ("GET", "/v1/rooms/{id}/messages", self._read),
            ("GET", "/v1/rooms/{id}/threads", self._threads),
            ("GET", "/v1/channels", self._channels),
            ("GET", "/v1/room-events", self._watch),
        ]

    async def _whoami(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.whoami(who(request)))

    async def _list(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answers(await self._api.list_rooms(who(request)))

    async def _create(self, request: Request) -> Response:
        body = await read_body(request, CreateRoom)
        return answer(await self._api.create_room(body, who(request)), status=201)

    async def _get(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.get_room(request.path_params["id"], who(request)))

    async def _invite(self, request: Request) -> Response:
        body = await read_body(request, InviteToRoom)
        return answer(await self._api.invite_to_room(request.path_params["id"], body, who(request)))

    async def _join(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return answer(await self._api.join_room(request.path_params["id"], who(request)))

    async def _leave(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return answer(await self._api.leave_room(request.path_params["id"], who(request)))

    async def _send(self, request: Request) -> Response:
        body = await read_body(request, SendMessage)
        return answer(await self._api.send_message(request.path_params["id"], body, who(request)), status=201)

    async def _read(self, request: Request) -> Response:
        query = read_query(request, ReadMessages)
        return answers(await self._api.read_messages(request.path_params["id"], query, who(request)))

    async def _threads(self, request: Request) -> Response:
        query = read_query(request, ReadMessages)
        return answers(await self._api.list_threads(request.path_params["id"], query, who(request)))

    async def _channels(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answers(await self._api.list_channels(who(request)))

    async def _watch(self, request: Request) -> Response:
        query = read_query(request, WatchRooms)
        return answer(await self._api.watch_rooms(query, who(request)))
