"""Watches on messages and channels, on the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_models import RoomCursor
from sublet.daemon.api.talk_api import TalkApi
from sublet.daemon.api.talk_models import SetWatch, UnsetWatch
from sublet.daemon.operations.answers import Endpoint, answer, who
from sublet.daemon.operations.reading import read_body, read_query


class RoomWatchArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: TalkApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/room-watches", self._list),
            ("GET", "/v1/room-cursor", self._newest),
            ("POST", "/v1/room-watches", self._set),
            ("DELETE", "/v1/room-watches", self._unset),
        ]

    async def _list(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.watches(who(request)))

    async def _newest(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(RoomCursor(cursor=await self._api.newest(who(request))))

    async def _set(self, request: Request) -> Response:
        body = await read_body(request, SetWatch)
        return answer(await self._api.set_watch(body, who(request)))

    async def _unset(self, request: Request) -> Response:
        query = read_query(request, UnsetWatch)
        return answer(await self._api.unset_watch(query, who(request)))
