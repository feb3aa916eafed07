"""Rooms as MCP resources, ``sublet://rooms/{id}``, and what tells hosts that something was said there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import anyio
import mcp.types as t
import structlog

from sublet.daemon.api.conversations import (
    GET_CONVERSATION,
    LIST_CONVERSATIONS,
    Conversation,
    ReadConversation,
    WhichConversation,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_news import FOLLOW_NEWS, GET_NEWEST, FollowNews
from sublet.mcp_server.room_answers import room_facts
from sublet.mcp_server.room_pages import page_answer
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import is_room_id
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.operations.calling import Calls

ROOM_PREFIX: Final = "sublet://rooms/"
ROOM_TEMPLATE: Final = ROOM_PREFIX + "{id}"
MAX_LISTED: Final = 50
MAX_TITLE_CHARS: Final = 100
MESSAGES: Final = 20
WAIT_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.1
"""Between two rounds of notifications, so that a talkative room costs each host ten lines a second at most."""

log = structlog.get_logger(__name__)


def is_room_uri(uri: str) -> bool:
    """Tell whether a resource is a room's."""
    return uri.startswith(ROOM_PREFIX)


def _room_id_of(uri: str) -> str:
    found = uri.removeprefix(ROOM_PREFIX)
    if not is_room_id(found):
        raise SubletError(LocalCode.NOT_FOUND, "there is no such resource", f"Resources look like {ROOM_TEMPLATE}.")
    return found


async def room_page(daemon: Calls, start: int) -> tuple[list[t.Resource], int | None]:
    """Return a page of the caller's rooms as resources, and where the next one begins.

    Those with unread messages come first; there are none where there are no rooms here.
    """
    try:
        rooms = await daemon.call(LIST_CONVERSATIONS, Nothing())
    except SubletError as error:
        log.info("rooms are not listed as resources", reason=str(error))
        return [], None
    end = start + MAX_LISTED
    found = [
        t.Resource(
            uri=ROOM_PREFIX + room.room_id,
            name=room.room_id,
            title=f"Room: {clean_line(room.direct_with or room.name, MAX_TITLE_CHARS)}",
            description=f"{room.members} members, {room.unread} unread",
            mime_type="text/plain",
        )
        for room in rooms[start:end]
    ]
    return found, end if end < len(rooms) else None


async def find_room(daemon: Calls, uri: str) -> Conversation:
    """Return the room that ``uri`` names.

    Raises:
        SubletError: ``NOT_FOUND`` for anything but the resource of a room that the caller may read.
    """
    return await daemon.call(GET_CONVERSATION, WhichConversation(room=_room_id_of(uri)))


async def read_room(daemon: Calls, uri: str) -> t.ReadResourceResult:
    """Return a room and its last messages as text, what others wrote quoted and labelled."""
    found = await find_room(daemon, uri)
    room = room_facts(found)
    messages = await page_answer(daemon, ReadConversation(room=found.room_id, limit=MESSAGES))
    text = f"{room.as_text()}\n{messages.as_text()}"
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, mime_type="text/plain", text=text)])


class RoomUpdates:
    """Tells hosts of rooms in which something was said.

    It begins with the first subscription to a room: until then nobody needs rooms here, and none are opened.

    Args:
        daemon: calls operations as nobody but this server.
        publish: tells the subscribers of a resource.
    """

    def __init__(self, daemon: Calls, publish: Callable[[str], Awaitable[None]]) -> None:
        self._daemon = daemon
        self._publish = publish
        self._wanted = anyio.Event()
        self._ready = anyio.Event()

    async def want(self) -> None:
        """Begin, and return once what is said from now on will be told."""
        self._wanted.set()
        await self._ready.wait()

    async def serve(self) -> None:
        """Run until cancelled."""
        await self._wanted.wait()
        cursor: int | None = None
        while True:
            try:
                if cursor is None:
                    cursor = (await self._daemon.call(GET_NEWEST, Nothing())).cursor
                    self._ready.set()
                request = FollowNews(since=cursor, wait=WAIT_SECONDS, peek=True)
                news = await self._daemon.call(FOLLOW_NEWS, request)
            except Exception as error:  # notifications are a courtesy; without them the tools still work
                log.warning("no update notifications of rooms for now", reason=str(error))
                self._ready.set()
                await anyio.sleep(RETRY_SECONDS)
                continue
            cursor = news.cursor
            for room_id in dict.fromkeys(event.room_id for event in news.events):
                await self._publish(ROOM_PREFIX + room_id)
            if news.events:
                await anyio.sleep(PAUSE_SECONDS)
