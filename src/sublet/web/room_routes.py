"""Rooms on the page: what the page's owner may read and say there, and news as they come."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.conversations import SEARCH_MESSAGES
from sublet.daemon.api.invitations import ACCEPT_INVITATION, DECLINE_INVITATION, LIST_INVITATIONS
from sublet.daemon.api.operation import AnyOperation
from sublet.daemon.api.room_files import FETCH_FILE
from sublet.daemon.api.room_marks import PURGE_MESSAGE
from sublet.daemon.api.room_messages import READ_MESSAGES, SEND_MESSAGE
from sublet.daemon.api.room_news import WATCH_ROOMS
from sublet.daemon.api.room_people import GET_PICTURE
from sublet.daemon.api.rooms import GET_ROOM, LIST_ROOMS, WHOAMI
from sublet.daemon.operations.answers import Endpoint
from sublet.daemon.operations.routes import OperationRoutes
from sublet.protocol.errors import LocalCode, SubletError

MAX_MESSAGE_BYTES: Final = 512 << 10
"""A message of the greatest length, each character of it escaped."""
MAX_WAITING: Final = 24
"""Pages that wait for news of rooms at one time; a page that nobody looks at does not."""
OF_ROOMS: Final[tuple[tuple[str, AnyOperation], ...]] = (
    ("/api/whoami", WHOAMI),
    ("/api/rooms", LIST_ROOMS),
    ("/api/invitations", LIST_INVITATIONS),
    ("/api/invitations/{room_id}/accept", ACCEPT_INVITATION),
    ("/api/invitations/{room_id}/decline", DECLINE_INVITATION),
    ("/api/rooms/{room_id}", GET_ROOM),
    ("/api/rooms/{room_id}/messages", READ_MESSAGES),
    ("/api/rooms/{room_id}/messages", SEND_MESSAGE),
    ("/api/rooms/{room_id}/messages/{ref_id}/purge", PURGE_MESSAGE),
    ("/api/rooms/{room_id}/files", FETCH_FILE),
    ("/api/messages", SEARCH_MESSAGES),
    ("/api/picture", GET_PICTURE),
)
"""The operations on rooms that the page may call, by where they are on the page."""


class RoomRoutes:
    """The routes of rooms.

    Args:
        made: makes endpoints, of bodies of up to ``MAX_MESSAGE_BYTES``.
    """

    def __init__(self, made: OperationRoutes) -> None:
        self._made = made
        self._news = made.endpoint(WATCH_ROOMS)
        self._waiting = 0

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """Return method, path and endpoint of each."""
        made = [(one.method, path, self._made.endpoint(one)) for path, one in OF_ROOMS]
        return [*made, (WATCH_ROOMS.method, "/api/room-events", self._watch)]

    async def _watch(self, request: Request) -> Response:
        if self._waiting >= MAX_WAITING:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"{MAX_WAITING} pages wait for news already", "Close some of their tabs."
            )
        self._waiting += 1
        try:
            return await self._news(request)
        finally:
            self._waiting -= 1
