"""Rooms on the page: what the page's owner may read and say there, and news as they come."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_api import RoomApi
from sublet.daemon.api.room_file_api import RoomFileApi
from sublet.daemon.api.room_file_models import FetchFile
from sublet.daemon.api.room_models import ReadMessages, SendMessage, WatchRooms
from sublet.daemon.net.waits import Waits
from sublet.daemon.operations.answers import OWNER, Endpoint, answer, answers
from sublet.daemon.operations.reading import read_body, read_query
from sublet.protocol.errors import LocalCode, SubletError

MAX_BODY_BYTES: Final = 512 << 10
"""A message of the greatest length, each character of it escaped."""
MAX_WAITING: Final = 24
"""Pages that wait for news of rooms at one time; a page that nobody looks at does not."""


class RoomRoutes:
    """The routes of rooms.

    Args:
        api: the daemon's operations on rooms.
        files: those on files of rooms.
        waits: ends what waits when the daemon stops.
    """

    def __init__(self, api: RoomApi, files: RoomFileApi, waits: Waits) -> None:
        self._api = api
        self._files = files
        self._waits = waits
        self._waiting = 0

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """Return method, path and endpoint of each."""
        return [
            ("GET", "/api/whoami", self._whoami),
            ("GET", "/api/rooms", self._list),
            ("GET", "/api/rooms/{id}", self._get),
            ("GET", "/api/rooms/{id}/messages", self._read),
            ("POST", "/api/rooms/{id}/messages", self._send),
            ("GET", "/api/rooms/{id}/files", self._fetch),
            ("GET", "/api/room-events", self._watch),
        ]

    async def _whoami(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.whoami(OWNER))

    async def _list(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answers(await self._api.list_rooms(OWNER))

    async def _fetch(self, request: Request) -> Response:
        query = read_query(request, FetchFile)
        return answer(await self._files.fetch_file(request.path_params["id"], query, OWNER))

    async def _get(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.get_room(request.path_params["id"], OWNER))

    async def _read(self, request: Request) -> Response:
        query = read_query(request, ReadMessages)
        return answers(await self._api.read_messages(request.path_params["id"], query, OWNER))

    async def _send(self, request: Request) -> Response:
        body = await read_body(request, SendMessage, MAX_BODY_BYTES)
        return answer(await self._api.send_message(request.path_params["id"], body, OWNER), status=201)

    async def _watch(self, request: Request) -> Response:
        query = read_query(request, WatchRooms)
        if self._waiting >= MAX_WAITING:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"{MAX_WAITING} pages wait for news already", "Close some of their tabs."
            )
        self._waiting += 1
        try:
            return answer(await self._waits.unless_stopping(lambda: self._api.watch_rooms(query, OWNER)))
        finally:
            self._waiting -= 1
