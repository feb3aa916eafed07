"""What an ACP agent calls its tools, as what policy decides on (DESIGN 4.9, 7)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from acp.schema import PermissionOption, ToolCallUpdate

from sublet.protocol.canonical import JsonValue
from sublet.protocol.patterns import Pattern
from sublet.supervisor import tools
from sublet.supervisor.model import JobResource
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
_OWN: Final[Mapping[str, str]] = {
    "Bash": tools.SHELL_EXEC,
    "Edit": tools.FILE_EDIT,
    "Glob": tools.FILE_SEARCH,
    "Grep": tools.FILE_SEARCH,
    "MultiEdit": tools.FILE_EDIT,
    "NotebookEdit": tools.FILE_EDIT,
    "Read": tools.FILE_READ,
    "WebFetch": tools.NETWORK_FETCH,
    "WebSearch": tools.NETWORK_FETCH,
    "Write": tools.FILE_WRITE,
}
"""What Claude Code's own tools are, which it tells apart more finely than by kind."""
_PATH_NAMES: Final = ("path", "file_path", "filePath", "abs_path", "notebook_path", "old_path", "new_path", "cwd")
_UNSAFE: Final = Pattern(r"[^a-z0-9._-]+")
_MCP: Final = Pattern(r"mcp__(?P<server>[A-Za-z0-9_-]+?)__(?P<tool>[A-Za-z0-9_-]+)\Z")


class TooLarge(Exception):
    """The arguments of a call are larger than anything that could be decided on."""


def tool_call(update: ToolCallUpdate, resources: Sequence[JobResource]) -> ToolCall:
    """Return the call that an agent asks permission for.

    Its name is what the program's own name for the tool means, else the kind that the agent states, else that name.
    The tools of other MCP servers are ``mcp__SERVER__TOOL`` to agents, which is ``mcp.SERVER.TOOL`` here, whatever kind
    the agent says they are. Whether the agent says the truth, the sandbox does not have to believe.

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
    return ToolCall(_name(update), arguments, update.tool_call_id, paths)


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


def _name(update: ToolCallUpdate) -> str:
    own = _own_name(update)
    if own and (mcp := _MCP.match(own)):
        return f"mcp.{_safe(mcp['server'])}.{_safe(mcp['tool'])}"
    known = _OWN.get(own) or _KINDS.get(str(update.kind or ""))
    return known or f"acp.{_safe(own or str(update.kind or 'other'))}"


def _own_name(update: ToolCallUpdate) -> str:
    """Return the program's own name of the tool, where it tells."""
    meta: Any = update.field_meta or {}
    for value in meta.values() if isinstance(meta, dict) else ():
        if isinstance(value, dict) and isinstance(name := value.get("toolName"), str):
            return name
    return update.title if update.title and _MCP.match(update.title) else ""


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name.lower())[:100].strip("-.") or "other"
