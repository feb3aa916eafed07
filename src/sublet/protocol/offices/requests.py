"""What members of an office send, read into types of their own; nothing of it is trusted before.

Fields beyond those of the specification pass a Computer unseen; of what the server itself acts on, only what is here
is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import ClientEvent, Role

MAX_NAME_CHARS: Final = 128
"""Of names, ids of offices and ids of requests."""
MAX_TOOL_CHARS: Final = 256
DEFAULT_CALL_SECONDS: Final = 60.0
"""How long an answer may take where the request does not say."""
MAX_CALL_SECONDS: Final = 3_600.0


class MalformedRequest(ValueError):
    """A request without a field that it has to have, or with one of another type."""


@dataclass(frozen=True, slots=True)
class Join:
    """``server:join_office``."""

    role: Role
    name: str
    office_id: str


@dataclass(frozen=True, slots=True)
class ListRoom:
    """``server:list_room``."""

    agent: str
    req_id: str
    office_id: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """``server:tool_call_cancel``."""

    agent: str
    req_id: str


@dataclass(frozen=True, slots=True)
class Relayed:
    """An event that an Agent sends to one Computer.

    Args:
        event: which one.
        agent: the name under which it is sent.
        req_id: chosen by the Agent; a Computer cancels by it.
        computer: for whom it is.
        data: the whole request, which the Computer gets as it is.
        tool: name of the tool, of a tool call alone.
        arguments: of a tool call alone.
        seconds: how long the answer may take.
    """

    event: ClientEvent
    agent: str
    req_id: str
    computer: str
    data: Mapping[str, JsonValue]
    tool: str
    arguments: Mapping[str, JsonValue]
    seconds: float


def read_join(arguments: Sequence[JsonValue]) -> Join:
    """Return the request to join an office.

    Raises:
        MalformedRequest: it is none.
    """
    data = _object(arguments)
    role = _text(data, "role")
    if role not in tuple(Role):
        raise MalformedRequest("role is neither agent nor computer")
    return Join(Role(role), _text(data, "name"), _text(data, "office_id"))


def read_leave(arguments: Sequence[JsonValue]) -> str:
    """Return the id of the office that a request wants to leave.

    Raises:
        MalformedRequest: it is none.
    """
    return _text(_object(arguments), "office_id")


def read_list_room(arguments: Sequence[JsonValue]) -> ListRoom:
    """Return the question who is in an office.

    Raises:
        MalformedRequest: it is none.
    """
    data = _object(arguments)
    return ListRoom(_text(data, "agent"), _text(data, "req_id"), _text(data, "office_id"))


def read_update(arguments: Sequence[JsonValue]) -> str:
    """Return the name of the Computer of which something has changed.

    Raises:
        MalformedRequest: it is none.
    """
    return _text(_object(arguments), "computer")


def read_cancel(arguments: Sequence[JsonValue]) -> Cancel:
    """Return the request to cancel a tool call.

    Raises:
        MalformedRequest: it is none.
    """
    data = _object(arguments)
    return Cancel(_text(data, "agent"), _text(data, "req_id"))


def read_relayed(event: ClientEvent, arguments: Sequence[JsonValue]) -> Relayed:
    """Return an event for a Computer.

    Raises:
        MalformedRequest: it is none.
    """
    data = _object(arguments)
    tool, params, seconds = "", dict[str, JsonValue](), DEFAULT_CALL_SECONDS
    if event is ClientEvent.TOOL_CALL:
        tool = _text(data, "tool_name", MAX_TOOL_CHARS)
        given = data.get("params")
        if not isinstance(given, dict):
            raise MalformedRequest("params is no object")
        params = given
    if "timeout" in data:
        seconds = _seconds(data["timeout"])
    return Relayed(
        event, _text(data, "agent"), _text(data, "req_id"), _text(data, "computer"), data, tool, params, seconds
    )


def _seconds(value: JsonValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise MalformedRequest("timeout is no number of seconds")
    return min(float(min(value, MAX_CALL_SECONDS)), MAX_CALL_SECONDS)


def _object(arguments: Sequence[JsonValue]) -> dict[str, JsonValue]:
    if len(arguments) != 1 or not isinstance(arguments[0], dict):
        raise MalformedRequest("it is not one object")
    return arguments[0]


def _text(data: Mapping[str, JsonValue], name: str, most: int = MAX_NAME_CHARS) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise MalformedRequest(f"{name} is no text")
    if len(value) > most:
        raise MalformedRequest(f"{name} has more than {most} characters")
    return value
