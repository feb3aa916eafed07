"""Replay's area of the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.replay_api import ReplayApi
from sublet.daemon.api.replay_models import ReplayRequest
from sublet.daemon.operations.answers import Endpoint, answer, who
from sublet.daemon.operations.reading import read_query


class ReplayArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: ReplayApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [("GET", "/v1/sessions/{id}/replay", self._replay)]

    async def _replay(self, request: Request) -> Response:
        query = read_query(request, ReplayRequest)
        return answer(await self._api.replay_session(request.path_params["id"], query, who(request)))
