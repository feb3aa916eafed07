"""A tool call as policy sees it: the tool is the resource, what it is called with are its attributes (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from sublet.policy.attributes import ARGUMENT_PREFIX, AROUND_A_COMMAND, SIFTED, UNCLEAR, WORDS_BESIDE
from sublet.policy.decision import Resource, Value
from sublet.protocol.canonical import JsonValue

MAX_ARGUMENT_ATTRIBUTES: Final = 256
MAX_ARGUMENT_DEPTH: Final = 8
_BESIDE_A_COMMAND: Final = (*WORDS_BESIDE, *AROUND_A_COMMAND)


def tool_resource(
    tool: str,
    arguments: Mapping[str, JsonValue],
    paths: Sequence[str] = (),
    *,
    access_mode: Literal["ro", "rw"] | None = None,
    delegation_id: str | None = None,
    peer: str | None = None,
    room: str | None = None,
    sifted: bool = False,
) -> Resource:
    """Return the resource of ``Action.TOOL_CALL``.

    Args:
        tool: its name as the agent said it; policy compares canonical names.
        arguments: what it is called with; what policy can't compare (null, lists of other than strings) is left out, so
            that an allow with a condition on it does not match and a deny does.
        paths: what it touches, relative to the lease's view, absolute where outside of it; with every link followed,
            as policy sees no disk.
        access_mode: of the lease in which it runs.
        delegation_id: the delegation for which it runs.
        peer: the daemon that gave the work.
        room: the room in which it was asked for.
        sifted: whether what it finds below its paths is asked for, file by file, before it is told.
    """
    attributes: dict[str, Value] = {}
    size = _flatten(ARGUMENT_PREFIX, arguments, attributes, 0, {})
    known = {"access_mode": access_mode, "delegation_id": delegation_id, "peer": peer, "room": room}
    attributes |= {name: value for name, value in known.items() if value is not None}
    attributes["size_bytes"] = size
    if paths:
        attributes["path"] = tuple(paths)
    if sifted:
        attributes[SIFTED] = True
    return Resource(tool, attributes)


def _flatten(
    prefix: str, arguments: Mapping[str, JsonValue], found: dict[str, Value], depth: int, met: dict[str, int]
) -> int:
    """Add the arguments to ``found``, and return how many bytes their texts have.

    ``{"a.b": x}`` and ``{"a": {"b": y}}`` are one attribute; where both are there it is left out, as what is not known:
    otherwise one would hide the other. ``met`` counts how often each was there, also of those that are left out.
    """
    size = 0
    for name, value in arguments.items():
        size += len(name.encode(errors="replace")) + _size(value)
        attribute = prefix + name
        if isinstance(value, dict) and depth < MAX_ARGUMENT_DEPTH:
            _flatten(f"{attribute}.", value, found, depth + 1, met)
            continue
        met[attribute] = met.get(attribute, 0) + 1
        compared = _compared(value)
        if met[attribute] > 1:
            found.pop(attribute, None)
        elif compared is not None and len(found) < MAX_ARGUMENT_ATTRIBUTES:
            found[attribute] = compared
        if attribute not in found and value not in (None, []) and attribute.startswith(_BESIDE_A_COMMAND):
            found[UNCLEAR] = True
    return size


def _compared(value: JsonValue) -> Value | None:
    """Return a value as rules compare it, or None."""
    match value:
        case bool() | int() | str():
            return value
        case list() if value and all(isinstance(item, str) for item in value):
            return tuple(str(item) for item in value)
        case _:
            return None


def _size(value: JsonValue) -> int:
    match value:
        case str():
            return len(value.encode(errors="replace"))
        case list():
            return sum(_size(item) for item in value)
        case dict():
            return sum(len(name.encode(errors="replace")) + _size(item) for name, item in value.items())
        case _:
            return 8
