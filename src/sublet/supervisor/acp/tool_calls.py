"""What an ACP agent calls its tools, as what policy decides on (DESIGN 4.9, 7)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from acp.schema import PermissionOption, ToolCallUpdate

from sublet.policy.tool_names import READING_TOOLS, is_known, tool_plain
from sublet.protocol.canonical import JsonValue
from sublet.protocol.patterns import Pattern
from sublet.supervisor import tools
from sublet.supervisor.job import JobResource
from sublet.supervisor.tool_gate import ToolCall

MAX_ARGUMENT_BYTES: Final = 1 << 20
MAX_PATHS: Final = 64
LOCATIONS: Final = "acp.locations"
"""The argument that holds what a call touches and does not name in its own arguments."""
_KINDS: Final[Mapping[str, str]] = {
    "read": tools.FILE_READ,
    "edit": tools.FILE_WRITE,
    "delete": tools.FILE_DELETE,
    "move": tools.FILE_MOVE,
    "search": tools.FILE_SEARCH,
    "execute": tools.SHELL_EXEC,
    "fetch": tools.NETWORK_FETCH,
}
_SAME: Final = (frozenset({tools.FILE_WRITE, tools.FILE_EDIT}), frozenset({*READING_TOOLS}))
"""Tools that agents' kinds do not tell apart."""
_PATH_NAMES: Final = ("path", "file_path", "filePath", "abs_path", "notebook_path", "old_path", "new_path", "cwd")
_WORD: Final = Pattern(r"[A-Za-z][A-Za-z0-9_.:-]{0,99}\Z")
_UNSAFE: Final = Pattern(r"[^a-z0-9._-]+")
_MCP: Final = Pattern(r"mcp__(?P<server>[A-Za-z0-9_-]+?)__(?P<tool>[A-Za-z0-9_-]+)\Z")


class TooLarge(Exception):
    """The arguments of a call are larger than anything that could be decided on."""


def tool_call(update: ToolCallUpdate, resources: Sequence[JobResource]) -> ToolCall:
    """Return the call that an agent asks permission for.

    Both count, the program's own name for the tool and the kind that the agent states. The tools of other MCP servers
    are ``mcp__SERVER__TOOL`` to agents, which is ``mcp.SERVER.TOOL`` here. Whether the agent says the truth, the
    sandbox does not have to believe.

    Raises:
        TooLarge: the arguments have more than ``MAX_ARGUMENT_BYTES``, or it touches more than ``MAX_PATHS``.
    """
    raw = update.raw_input
    arguments: dict[str, JsonValue] = dict(raw) if isinstance(raw, dict) else {} if raw is None else {"input": raw}
    if not arguments and update.title:
        arguments = {"title": update.title}
    if len(json.dumps(arguments, default=str)) > MAX_ARGUMENT_BYTES:
        raise TooLarge
    told = [in_view(location.path, resources) for location in update.locations or []]
    named = [value for name in _PATH_NAMES if isinstance(value := arguments.get(name), str) and value]
    own = [in_view(path, resources) for path in named]
    paths = tuple(dict.fromkeys((*told, *own)))
    if len(paths) > MAX_PATHS:
        raise TooLarge
    if more := sorted(set(told) - set(own)):
        arguments[LOCATIONS] = [*more]  # a grant is for these and for no others
    name, also, perhaps = _names(update)
    return ToolCall(name, arguments, update.tool_call_id, paths, also=also, perhaps=perhaps)


def in_view(path: str, resources: Sequence[JobResource]) -> str:
    """Return ``path`` as ``ToolCall.paths`` has it: below a lent directory by that one's name, else absolute.

    Relative paths are relative to the directory that the agent works in. Links are not followed: what they lead to is
    for the sandbox to show or not.
    """
    absolute = os.path.normpath(os.path.join(resources[0].path, path))
    for resource in resources:
        root = str(resource.path)
        if absolute == root or absolute.startswith(f"{root}/"):
            return f"{resource.name}{absolute[len(root) :]}"
    return absolute


def choose(options: Sequence[PermissionOption], *, allowed: bool) -> str | None:
    """Return the id of the option that says just this; None where there is none, which cancels the call.

    What holds for ever is never chosen to allow: the next call is asked about again.
    """
    kinds = ("allow_once",) if allowed else ("reject_once", "reject_always")
    for kind in kinds:
        for option in options:
            if option.kind == kind:
                return option.option_id
    return None


def _names(update: ToolCallUpdate) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return what the tool is, what else it is called, and what it may be besides (``ToolCall``)."""
    own, kind = _own_name(update), _KINDS.get(str(update.kind or ""))
    title = update.title if update.title and _WORD.match(update.title) else ""
    if not own:
        perhaps = [title] if title else []
        if kind == tools.FILE_WRITE:
            perhaps.append(tools.FILE_EDIT)
        return kind or f"acp.{_safe(str(update.kind or 'other'))}", (), tuple(perhaps)
    mcp = _MCP.match(own)
    if mcp:
        named = f"mcp.{_safe(mcp['server'])}.{_safe(mcp['tool'])}"
    else:
        named = tool_plain(own) if is_known(own) else f"acp.{_safe(own)}"
    if kind is None or kind == named:
        return named, (), ()
    if any({kind, named} <= same for same in _SAME):
        return named, (), (kind,)
    return (named, (kind,), ()) if mcp or is_known(own) else (kind, (named,), ())


def _own_name(update: ToolCallUpdate) -> str:
    """Return the program's own name of the tool, where it tells."""
    meta: Any = update.field_meta or {}
    for value in meta.values() if isinstance(meta, dict) else ():
        if isinstance(value, dict) and isinstance(name := value.get("toolName"), str) and name:
            return name
    return update.title if update.title and _MCP.match(update.title) else ""


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name.lower())[:100].strip("-.") or "other"
