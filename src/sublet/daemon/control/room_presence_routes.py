"""Who is there, and what is not sent yet, on the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_presence_api import RoomPresenceApi
from sublet.daemon.api.room_presence_models import SaveDraft, SetPresence
from sublet.daemon.operations.answers import Endpoint, answer, answers, who
from sublet.daemon.operations.reading import read_body, read_query


class RoomPresenceArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: RoomPresenceApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/rooms/{id}/presence", self._list),
            ("POST", "/v1/rooms/{id}/presence", self._set),
            ("GET", "/v1/rooms/{id}/draft", self._load),
            ("POST", "/v1/rooms/{id}/draft", self._save),
        ]

    async def _list(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answers(await self._api.list_presence(request.path_params["id"], who(request)))

    async def _set(self, request: Request) -> Response:
        body = await read_body(request, SetPresence)
        return answer(await self._api.set_presence(request.path_params["id"], body, who(request)))

    async def _load(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.load_draft(request.path_params["id"], who(request)))

    async def _save(self, request: Request) -> Response:
        body = await read_body(request, SaveDraft)
        return answer(await self._api.save_draft(request.path_params["id"], body, who(request)))
