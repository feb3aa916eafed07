"""Answers what the Agent of an office asks of a Computer. What comes from the office is arguments of calls, no more.

No call runs twice: an id that is under way is refused, and so is one whose call was cut off with its connection, as
nobody knows how far that had come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import structlog

from sublet import deadlines
from sublet.office_client.blobs import BlobShelf, Landing
from sublet.office_client.desktop import desktop
from sublet.office_client.results import call_answer, failed_call, resource_answer, tool_answer
from sublet.office_client.servers import ServerFailed, ToolServer
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.answers import (
    BROKEN,
    TIMED_OUT,
    TOO_MANY,
    Answer,
    computer_not_found,
    failed,
    flat_error,
    malformed,
)
from sublet.protocol.offices.names import NOT_FOUND, ClientEvent, Notice
from sublet.protocol.offices.requests import MalformedRequest, Relayed, read_cancel, read_relayed
from sublet.protocol.offices.tool_names import exposed_name
from sublet.protocol.text import clean_line

MAX_CALLS: Final = 64
"""Tool calls under way at one time."""
MAX_DESKTOPS: Final = 4
"""That are gathered at one time."""
MAX_CUT_OFF: Final = 1_024
"""Ids of calls that were cut off which are remembered."""
READ_SECONDS: Final = 60.0
"""How long what is no tool call may take."""
SERVER_NOT_FOUND: Final = 4014
NOT_SUPPORTED: Final = 4015

log = structlog.get_logger(__name__)


class Computer:
    """Implements ``Answers``.

    Args:
        name: under which it sits in its office.
        servers: whose tools it shows.
        landing: takes uploads.
    """

    def __init__(self, name: str, servers: Sequence[ToolServer], landing: Landing) -> None:
        self.name = name
        self._servers = {one.command.bundle_id: one for one in servers}
        self._landing = landing
        self._shelf = BlobShelf()
        self._calls: dict[tuple[str, str], _Call] = {}
        self._cut_off: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._last_used: list[str] = []
        self._desktops = anyio.Semaphore(MAX_DESKTOPS)

    async def answer(self, event: str, arguments: tuple[JsonValue, ...]) -> JsonValue:
        """``Answers.answer``."""
        if event not in tuple(ClientEvent):
            return flat_error(NOT_FOUND, "Unknown event")
        try:
            asked = read_relayed(ClientEvent(event), arguments)
        except MalformedRequest as error:
            return malformed(str(error))
        if asked.computer != self.name:
            return computer_not_found(asked.computer)
        try:
            if asked.event is ClientEvent.TOOL_CALL:
                return await self._call(asked)
            async with deadlines.timeout(min(asked.seconds, READ_SECONDS)):
                return await self._read(asked)
        except TimeoutError:
            return failed(asked.event, TIMED_OUT, "timeout", "it took too long")
        except ServerFailed as error:
            return failed(asked.event, BROKEN, "io_error", str(error))
        except Exception as error:
            log.exception("what an office asked could not be answered", event_name=event)
            return failed(asked.event, BROKEN, "io_error", f"it has failed: {clean_line(type(error).__name__, 100)}")

    def instead(self, event: str, why: str) -> JsonValue:
        """``Answers.instead``."""
        if event not in tuple(ClientEvent):
            return flat_error(BROKEN, why)
        return failed(ClientEvent(event), BROKEN, "too_large", f"{self.name}: {why}")

    def unsent(self, event: str, arguments: tuple[JsonValue, ...]) -> None:
        """``Answers.unsent``: a call whose result was lost counts as one that was cut off."""
        if event != ClientEvent.TOOL_CALL:
            return
        try:
            asked = read_relayed(ClientEvent.TOOL_CALL, arguments)
        except MalformedRequest:
            return
        key = (asked.agent, asked.req_id)
        if key not in self._calls:  # else this was the refusal of a second one
            self._note_cut_off(key)

    def hear(self, event: str, arguments: tuple[JsonValue, ...]) -> None:
        """``Answers.hear``: a cancel ends the call that it names; all else is for Agents."""
        if event != Notice.CANCEL:
            return
        try:
            told = read_cancel(arguments)
        except MalformedRequest:
            return
        if (call := self._calls.get((told.agent, told.req_id))) is not None:
            call.scope.cancel()

    def tool_names(self) -> list[str]:
        """Return the names of all tools, as the office sees them."""
        return [exposed_name(bundle, tool.name) for bundle, one in self._servers.items() for tool in one.tools]

    async def _call(self, asked: Relayed) -> Answer:
        key = (asked.agent, asked.req_id)
        if key in self._cut_off:
            return failed_call("this call was cut off with its connection, and is not run a second time")
        if key in self._calls:
            return failed_call("a call with this req_id is under way")
        if len(self._calls) >= MAX_CALLS:
            return failed(asked.event, TOO_MANY, "busy", f"{MAX_CALLS} calls are under way")
        found = self._find(asked.tool)
        if found is None:
            return failed_call(f"there is no tool {clean_line(asked.tool, 100)!r} here")
        server, tool = found
        self._note_use(server.command.bundle_id)
        call = self._calls[key] = _Call()
        try:
            with call.scope:
                async with deadlines.timeout(asked.seconds):
                    result = await server.call(tool, asked.arguments, asked.seconds)
                return call_answer(result, self._shelf)
        except TimeoutError:
            return failed_call(f"it has not answered in {asked.seconds:g} s", a2c_timeout=True)
        except ServerFailed as error:
            return failed_call(str(error))
        except anyio.get_cancelled_exc_class():
            self._note_cut_off(key)
            raise
        finally:
            del self._calls[key]
        return failed_call("the call was cancelled", a2c_cancelled=True, a2c_cancel_reason="agent_requested")

    def _find(self, exposed: str) -> tuple[ToolServer, str] | None:
        for bundle, server in self._servers.items():
            for tool in server.tools:
                if exposed == exposed_name(bundle, tool.name):
                    return server, tool.name
        return None

    def _note_cut_off(self, key: tuple[str, str]) -> None:
        self._cut_off[key] = None
        if len(self._cut_off) > MAX_CUT_OFF:
            self._cut_off.popitem(last=False)

    def _note_use(self, bundle: str) -> None:
        self._last_used = [bundle, *(one for one in self._last_used if one != bundle)]

    async def _read(self, asked: Relayed) -> Answer:
        data, req_id = asked.data, asked.req_id
        match asked.event:
            case ClientEvent.GET_TOOLS:
                tools: list[JsonValue] = [
                    tool_answer(bundle, tool) for bundle, one in self._servers.items() for tool in one.tools
                ]
                return {"tools": tools, "req_id": req_id}
            case ClientEvent.GET_CONFIG:
                return {"servers": {bundle: _config(one) for bundle, one in self._servers.items()}, "inputs": []}
            case ClientEvent.GET_DESKTOP:
                size, window = data.get("desktop_size"), data.get("window")
                async with self._desktops:
                    shown = await desktop(
                        self._by_use(),
                        size if isinstance(size, int) and not isinstance(size, bool) else None,
                        window if isinstance(window, str) else None,
                    )
                return {"desktops": [*shown], "req_id": req_id}
            case ClientEvent.GET_RESOURCES:
                return await self._resources(data, req_id)
            case ClientEvent.GET_SKILLS:
                return {"skills": [], "req_id": req_id}
            case ClientEvent.GET_SKILL:
                name = data.get("name")
                shown_name = clean_line(name, 100) if isinstance(name, str) else ""
                return {"code": SERVER_NOT_FOUND, "message": "Skill not found", "details": {"name": shown_name}}
            case ClientEvent.GET_BLOB:
                return self._shelf.piece(data, req_id)
            case ClientEvent.PUT_BLOB:
                return await self._landing.take(data, req_id)
            case _:
                raise AssertionError(asked.event)

    def _by_use(self) -> list[ToolServer]:
        names = [*self._last_used, *(one for one in self._servers if one not in self._last_used)]
        return [self._servers[name] for name in names]

    async def _resources(self, data: Mapping[str, JsonValue], req_id: str) -> Answer:
        bundle, cursor = data.get("mcp_server"), data.get("cursor")
        server = self._servers.get(bundle) if isinstance(bundle, str) else None
        if server is None:
            shown = clean_line(bundle, 100) if isinstance(bundle, str) else ""
            return {"code": SERVER_NOT_FOUND, "message": "MCP Server not registered", "mcp_server": shown}
        page = await server.resources(cursor if isinstance(cursor, str) else None)
        if page is None:
            return {
                "code": NOT_SUPPORTED,
                "message": "MCP Server does not support 'resources' capability",
                "mcp_server": server.command.bundle_id,
                "capability": "resources",
            }
        answer: Answer = {"resources": [resource_answer(one) for one in page.resources], "req_id": req_id}
        return {**answer, "next_cursor": page.next_cursor} if page.next_cursor is not None else answer


class _Call:
    """A call under way; ``scope`` is cancelled where its Agent calls it off."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()


def _config(server: ToolServer) -> JsonValue:
    """Return what is told of how a server is started: its program. Arguments and variables may hold secrets."""
    command = server.command
    return {
        "name": command.name,
        "bundle_id": command.bundle_id,
        "disabled": False,
        "forbidden_tools": [],
        "tool_meta": {},
        "type": "stdio",
        "server_parameters": {
            "command": command.argv[0].rpartition("/")[2],
            "args": [],
            "env": None,
            "cwd": None,
            "encoding": "utf-8",
            "encoding_error_handler": "strict",
        },
    }
