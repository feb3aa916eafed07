"""A daemon that answers any question with something of the right shape, and keeps what it was asked.

For tests of what a caller asks: what is answered says nothing, and is the same each time.
"""

from __future__ import annotations

import types
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from sublet.cli.reaching.connection import Session
from sublet.daemon.api.operation import Feed, Operation, Streaming
from sublet.protocol.errors import LocalCode, SubletError

MOST_ASKED: Final = 40
"""Questions of one command: one that would ask for ever is ended."""
ENDED: Final = "completed"
"""The state of whatever has one: nobody waits for more."""
AT: Final = "2026-11-28T10:00:00Z"
LATER: Final = "2099-01-01T00:00:00Z"
NODE: Final = "node-aaaaaaaaaaaaaaaa"
ROOM: Final = "0190aaaa-0000-7000-8000-000000000000"
REF: Final = "01JQZ000000000000000000000"
DELEGATION: Final = "dlg_" + "0" * 32
SESSION: Final = "ses_" + "a" * 26
TEXTS: Final[Mapping[str, str]] = {
    "entity_id": f"@human:{NODE}",
    "node_id": NODE,
    "room_id": ROOM,
    "ref_id": REF,
    "delegation_id": DELEGATION,
    "finger_session_id": SESSION,
    "expires_at": LATER,
    "a2a_url": "http://127.0.0.1:8642",
    "base64": "",
    "editors": "@human:node-bbbbbbbbbbbbbbbb",
    "state": ENDED,
}
"""What a field of this name holds; others hold their own name."""


def made(kind: Any, name: str = "text") -> Any:
    """Return a value of a type, as plain as there is one."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return made(arguments[0], name)
    if origin is Literal:
        return ENDED if ENDED in arguments else arguments[0]
    if origin in (Union, types.UnionType):
        return None if type(None) in arguments else made(arguments[0], name)
    if origin in (list, tuple):
        return [made(arguments[0], name)] if arguments else []
    if origin is dict or kind is dict:
        return {}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {one: made(field.annotation, one) for one, field in kind.model_fields.items()}
        if "cursor" in fields and "events" in fields:
            fields["events"] = []  # whoever goes on from page to page has come to the end
        return kind.model_construct(**fields)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((one for one in kind if one.value == ENDED), next(iter(kind)))
    if kind in (int, float, bool):
        return kind(kind is not bool)
    return TEXTS.get(name, AT if name.endswith(("_at", "activity", "active")) else name)


class AskedControl:
    """Implements what commands want of ``ControlClient``. ``asked`` is what they did."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def session(self) -> Session:
        """Return a session whose daemon this is."""

        @asynccontextmanager
        async def connect() -> AsyncIterator[Any]:
            yield self

        return Session(connect=connect, owner=lambda: None)

    async def call(self, operation: Operation[Any, Any], request: BaseModel) -> Any:
        """Answer."""
        self._keep(operation.name, request)
        if len(self.asked) > MOST_ASKED:
            raise SubletError(LocalCode.UNAVAILABLE, "enough was asked")
        return made(operation.answer)

    async def stream(self, operation: Streaming[Any, Any], request: BaseModel) -> AsyncGenerator[Any, None]:
        """Answer with nothing."""
        self._keep(operation.name, request)
        return
        yield

    async def follow(self, feed: Feed[Any, Any], request: BaseModel) -> AsyncGenerator[Any, None]:
        """Tell nothing."""
        self._keep(feed.name, request)
        return
        yield

    def _keep(self, name: str, request: BaseModel) -> None:
        self.asked.append(f"{name} {request.model_dump_json()}")
