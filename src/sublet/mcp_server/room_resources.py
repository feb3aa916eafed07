"""Rooms as MCP resources, ``sublet://rooms/{id}``, and what tells hosts that something was said there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import anyio
import mcp.types as t
import structlog

from sublet.daemon.api.talk_models import Follow, ReadTalk
from sublet.mcp_server.room_answers import room_facts
from sublet.mcp_server.room_tools import page_answer
from sublet.policy.model import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import is_room_id
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.api.talk_api import TalkApi

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


def room_id_of(uri: str) -> str:
    """Return the room that ``uri`` names.

    Raises:
        SubletError: ``NOT_FOUND`` for anything but a room's resource.
    """
    found = uri.removeprefix(ROOM_PREFIX)
    if not is_room_id(found):
        raise SubletError(LocalCode.NOT_FOUND, "there is no such resource", f"Resources look like {ROOM_TEMPLATE}.")
    return found


async def room_resources(talk: TalkApi, caller: Subject) -> list[t.Resource]:
    """Return the caller's rooms as resources, those with unread messages first; none where there are no rooms here."""
    try:
        rooms = await talk.talk_rooms(caller)
    except SubletError as error:
        log.info("rooms are not listed as resources", reason=str(error))
        return []
    return [
        t.Resource(
            uri=ROOM_PREFIX + room.room_id,
            name=room.room_id,
            title=f"Room: {clean_line(room.direct_with or room.name, MAX_TITLE_CHARS)}",
            description=f"{len(room.members)} members, {room.unread} unread",
            mime_type="text/plain",
        )
        for room in rooms[:MAX_LISTED]
    ]


async def read_room(talk: TalkApi, uri: str, caller: Subject) -> t.ReadResourceResult:
    """Return a room and its last messages as text, what others wrote quoted and labelled."""
    room_id = room_id_of(uri)
    room = room_facts(await talk.talk_room(room_id, caller))
    messages = await page_answer(talk, ReadTalk(room=room_id, limit=MESSAGES), caller)
    text = f"{room.as_text()}\n{messages.as_text()}"
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, mime_type="text/plain", text=text)])


class RoomUpdates:
    """Tells hosts of rooms in which something was said.

    It begins with the first subscription to a room: until then nobody needs rooms here, and none are opened.

    Args:
        talk: the rooms.
        publish: tells the subscribers of a resource.
    """

    def __init__(self, talk: TalkApi, publish: Callable[[str], Awaitable[None]]) -> None:
        self._talk = talk
        self._publish = publish
        self._caller = Subject(kind="mcp", name="sublet")
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
                    cursor = await self._talk.newest(self._caller)
                    self._ready.set()
                news = await self._talk.news(Follow(since=cursor, wait=WAIT_SECONDS, peek=True), self._caller)
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
