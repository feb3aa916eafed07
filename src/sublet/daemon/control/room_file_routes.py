"""Files in rooms, on the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.room_file_api import RoomFileApi
from sublet.daemon.api.room_file_models import MAX_UPLOAD_BYTES, FetchFile, UploadFile
from sublet.daemon.operations.answers import Endpoint, answer, who
from sublet.daemon.operations.reading import read_body, read_query


class RoomFileArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: RoomFileApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/rooms/{id}/files", self._fetch),
            ("POST", "/v1/rooms/{id}/files", self._upload),
        ]

    async def _fetch(self, request: Request) -> Response:
        query = read_query(request, FetchFile)
        return answer(await self._api.fetch_file(request.path_params["id"], query, who(request)))

    async def _upload(self, request: Request) -> Response:
        body = await read_body(request, UploadFile, MAX_UPLOAD_BYTES)
        return answer(await self._api.upload_file(request.path_params["id"], body, who(request)), status=201)
