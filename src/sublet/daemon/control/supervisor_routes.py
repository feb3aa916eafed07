"""The supervisor's area of the control API: asking, as a stream; sessions; the agents of this daemon."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.base import Request as Arguments
from sublet.daemon.api.models import MAX_PAGE
from sublet.daemon.api.supervisor_api import SupervisorApi
from sublet.daemon.api.supervisor_models import (
    MAX_MESSAGES_SHOWN,
    AskAnswer,
    AskBegun,
    AskOutput,
    AskRequest,
    NewSession,
    SessionChange,
)
from sublet.daemon.control.answers import Endpoint, stream, who
from sublet.daemon.control.requests import Nothing, read_body, read_query


class ListSessions(Arguments):
    """Which sessions to list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50


class ShowSession(Arguments):
    """How many messages to show."""

    messages: Annotated[int, Field(ge=0, le=MAX_MESSAGES_SHOWN)] = 20


_KINDS: dict[type[BaseModel], str] = {AskBegun: "begun", AskOutput: "output", AskAnswer: "answer"}


class SupervisorArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: SupervisorApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("POST", "/v1/ask", self._ask),
            ("GET", "/v1/agents", self._list_agents),
            ("GET", "/v1/sessions", self._list_sessions),
            ("POST", "/v1/sessions", self._create_session),
            ("GET", "/v1/sessions/{id}", self._get_session),
            ("POST", "/v1/sessions/{id}", self._change_session),
            ("DELETE", "/v1/sessions/{id}", self._delete_session),
        ]

    async def _ask(self, request: Request) -> Response:
        body = await read_body(request, AskRequest)
        updates = self._api.ask(body, who(request))
        # The first one before the answer begins, so that a refusal is still an HTTP error.
        first = await anext(updates)
        return stream(_events(first, updates))

    async def _list_agents(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _named(await self._api.list_agents(who(request)))

    async def _list_sessions(self, request: Request) -> Response:
        query = read_query(request, ListSessions)
        found = await self._api.list_sessions(who(request), limit=query.limit)
        body = ",".join(one.model_dump_json(by_alias=True) for one in found)
        return Response(f"[{body}]", media_type="application/json")

    async def _create_session(self, request: Request) -> Response:
        body = await read_body(request, NewSession)
        return _named(await self._api.create_session(body.title, who(request)), status=201)

    async def _get_session(self, request: Request) -> Response:
        query = read_query(request, ShowSession)
        return _named(await self._api.get_session(request.path_params["id"], who(request), messages=query.messages))

    async def _change_session(self, request: Request) -> Response:
        body = await read_body(request, SessionChange)
        return _named(await self._api.change_session(request.path_params["id"], body, who(request)))

    async def _delete_session(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _named(await self._api.delete_session(request.path_params["id"], who(request)))


async def _events(
    first: AskBegun | AskOutput | AskAnswer, updates: AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]
) -> AsyncIterator[tuple[str, str]]:
    async with aclosing(updates):
        yield _event(first)
        async for update in updates:
            yield _event(update)


def _event(update: AskBegun | AskOutput | AskAnswer) -> tuple[str, str]:
    # ASCII, since readers take U+2028 and its like for the end of a line.
    return _KINDS[type(update)], update.model_dump_json(by_alias=True, ensure_ascii=True)


def _named(view: BaseModel, *, status: int = 200) -> Response:
    return Response(view.model_dump_json(by_alias=True), status_code=status, media_type="application/json")
