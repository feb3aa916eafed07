"""Texts that several write, on the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_text_api import RoomTextApi
from sublet.daemon.api.room_text_models import EditText, ShareText
from sublet.daemon.operations.answers import Endpoint, answer, who
from sublet.daemon.operations.reading import read_body, read_query


class RoomTextArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: RoomTextApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/rooms/{id}/messages/{ref}/text", self._get),
            ("PATCH", "/v1/rooms/{id}/messages/{ref}/text", self._edit),
            ("GET", "/v1/rooms/{id}/messages/{ref}/access", self._access),
            ("POST", "/v1/rooms/{id}/messages/{ref}/access", self._share),
        ]

    async def _get(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.get_text(*_message(request), who(request)))

    async def _edit(self, request: Request) -> Response:
        body = await read_body(request, EditText)
        return answer(await self._api.edit_text(*_message(request), body, who(request)))

    async def _access(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.get_access(*_message(request), who(request)))

    async def _share(self, request: Request) -> Response:
        body = await read_body(request, ShareText)
        return answer(await self._api.share_text(*_message(request), body, who(request)))


def _message(request: Request) -> tuple[str, str]:
    return request.path_params["id"], request.path_params["ref"]
