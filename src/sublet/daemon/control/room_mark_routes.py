"""What is done to messages that are there, on the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.room_mark_api import RoomMarkApi
from sublet.daemon.api.room_mark_models import EditMessage, Moderate, React
from sublet.daemon.control.answers import Endpoint, answer, answers, who
from sublet.daemon.control.requests import Nothing, read_body, read_query


class RoomMarkArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: RoomMarkApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/rooms/{id}/messages/{ref}", self._get),
            ("PATCH", "/v1/rooms/{id}/messages/{ref}", self._edit),
            ("DELETE", "/v1/rooms/{id}/messages/{ref}", self._delete),
            ("GET", "/v1/rooms/{id}/messages/{ref}/versions", self._versions),
            ("POST", "/v1/rooms/{id}/messages/{ref}/reactions", self._react),
            ("DELETE", "/v1/rooms/{id}/messages/{ref}/reactions", self._unreact),
            ("POST", "/v1/rooms/{id}/messages/{ref}/moderation", self._moderate),
        ]

    async def _get(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.get_message(*_message(request), who(request)))

    async def _edit(self, request: Request) -> Response:
        body = await read_body(request, EditMessage)
        return answer(await self._api.edit_message(*_message(request), body, who(request)))

    async def _delete(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.delete_message(*_message(request), who(request)))

    async def _versions(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answers(await self._api.list_versions(*_message(request), who(request)))

    async def _react(self, request: Request) -> Response:
        body = await read_body(request, React)
        return answer(await self._api.add_reaction(*_message(request), body, who(request)))

    async def _unreact(self, request: Request) -> Response:
        query = read_query(request, React)
        return answer(await self._api.remove_reaction(*_message(request), query, who(request)))

    async def _moderate(self, request: Request) -> Response:
        body = await read_body(request, Moderate)
        return answer(await self._api.moderate_message(*_message(request), body, who(request)))


def _message(request: Request) -> tuple[str, str]:
    return request.path_params["id"], request.path_params["ref"]
