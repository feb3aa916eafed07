"""The area of the control API around whom somebody talks with."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.talk_api import TalkApi
from sublet.daemon.api.talk_models import Reach
from sublet.daemon.operations.answers import Endpoint, answer, who
from sublet.daemon.operations.reading import read_body


class TalkArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: TalkApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [("POST", "/v1/conversations", self._reach)]

    async def _reach(self, request: Request) -> Response:
        return answer(await self._api.reach(await read_body(request, Reach), who(request)))
