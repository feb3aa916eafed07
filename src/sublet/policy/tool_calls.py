"""A tool call as policy sees it: the tool is the resource, what it is called with are its attributes (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from sublet.policy.model import Resource, Value
from sublet.protocol.canonical import JsonValue

ARGUMENT_PREFIX: Final = "args."
"""An argument ``command`` is the attribute ``args.command``; one inside an object is ``args.outer.inner``."""
MAX_ARGUMENT_ATTRIBUTES: Final = 256
MAX_ARGUMENT_DEPTH: Final = 8


def tool_resource(
    tool: str,
    arguments: Mapping[str, JsonValue],
    paths: Sequence[str] = (),
    *,
    access_mode: Literal["ro", "rw"] | None = None,
    delegation_id: str | None = None,
) -> Resource:
    """Return the resource of ``Action.TOOL_CALL``.

    Args:
        tool: its name as the agent said it; policy compares canonical names.
        arguments: what it is called with; what policy can't compare (null, lists of other than strings) is left out, so
            that an allow with a condition on it does not match and a deny does.
        paths: what it touches, relative to the lease's view, absolute where outside of it.
        access_mode: of the lease in which it runs.
        delegation_id: the delegation for which it runs.
    """
    attributes: dict[str, Value] = {}
    _flatten(ARGUMENT_PREFIX, arguments, attributes, 0)
    if paths:
        attributes["path"] = tuple(paths)
    if access_mode is not None:
        attributes["access_mode"] = access_mode
    if delegation_id is not None:
        attributes["delegation_id"] = delegation_id
    return Resource(tool, attributes)


def _flatten(prefix: str, arguments: Mapping[str, JsonValue], found: dict[str, Value], depth: int) -> None:
    for name, value in arguments.items():
        if len(found) >= MAX_ARGUMENT_ATTRIBUTES:
            return
        match value:
            case bool() | int() | str():
                found[prefix + name] = value
            case list() if value and all(isinstance(item, str) for item in value):
                found[prefix + name] = tuple(str(item) for item in value)
            case dict() if depth < MAX_ARGUMENT_DEPTH:
                _flatten(f"{prefix}{name}.", value, found, depth + 1)
            case _:
                pass
