"""The area of the control API around what became of messages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.delivery_api import DeliveryApi
from sublet.daemon.api.delivery_models import AskReceipts
from sublet.daemon.operations.answers import Endpoint, answer, who
from sublet.daemon.operations.reading import read_query


class DeliveryArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: DeliveryApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [("GET", "/v1/rooms/{id}/messages/{ref}/receipts", self._receipts)]

    async def _receipts(self, request: Request) -> Response:
        query = read_query(request, AskReceipts)
        room_id, ref_id = request.path_params["id"], request.path_params["ref"]
        return answer(await self._api.receipts(room_id, ref_id, query, who(request)))
