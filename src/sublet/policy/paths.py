"""The one language of paths in rules, tests of rules, questions and grants (DESIGN 7).

A path of a tool is relative to the lent directory (``src/a.py``). A path of lending is absolute, and every link in it
is followed; ``~`` is the owner's home. Whoever asks policy, and whoever writes rules, passes paths through here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from sublet.policy.attributes import PATH_RESOURCES
from sublet.policy.decision import Action, Resource, Value
from sublet.policy.globs import literal_directory, path_defect
from sublet.policy.tool_names import READING_TOOLS, WRITING_TOOLS, tool_plain
from sublet.protocol.canonical import JsonValue

PATH: Final = "path"
LENT: Final = "."
"""The lent directory itself, as a path of a tool."""
LENDING: Final = frozenset(
    {Action.WORKSPACE_LEND, Action.WORKSPACE_REVEAL, Action.WORKSPACE_UNLOCK, Action.LEND_ROOT_MANAGE}
)
"""Actions whose attribute ``path`` is absolute."""
HOME: Final = "~"

Language = Literal["lent", "absolute"]
_PATH_ARGUMENTS: Final = ("path", "to")


def language_of(action: Action) -> Language:
    """Return which paths the attribute ``path`` of ``action`` has."""
    return "absolute" if action in LENDING else "lent"


def lent_path(path: str, directories: Sequence[str]) -> str:
    """Return a path of a lease's view as rules see it: without the name of the lent directory that it begins with.

    Args:
        path: of the view, the directory's name first; absolute where it leads out, and then as it is.
        directories: names of the lent directories.
    """
    first, _, rest = path.partition("/")
    if first and first in directories:
        return rest.strip("/") or LENT
    return path


def lent_paths(paths: Sequence[str], directories: Sequence[str]) -> tuple[str, ...]:
    """Return paths of a lease's view as rules see them, each once."""
    return tuple(dict.fromkeys(lent_path(path, directories) for path in paths))


def expanded(path: str, home: Path | None = None) -> str:
    """Return ``path`` with a ``~`` before it as the owner's home; a home of somebody else's stays as it is."""
    if path != HOME and not path.startswith(f"{HOME}/"):
        return path
    return f"{home or Path.home()}{path.removeprefix(HOME)}"


def real_path(path: str) -> str:
    """Return where ``path`` leads once every link is followed; what is no absolute path stays as it is."""
    return path if not os.path.isabs(path) or "\0" in path else os.path.realpath(path)


def led_to(pattern: str) -> tuple[str, ...]:
    """Return a pattern of absolute paths, and the same by where its directory leads, where that is somewhere else.

    Gates compare real paths, so a rule over a link would never match.
    """
    if not pattern.startswith("/") or path_defect(pattern):
        return (pattern,)
    directory = literal_directory(pattern).rstrip("/")
    try:
        real = os.path.realpath(directory or "/")
    except (OSError, ValueError):
        return (pattern,)
    found = real.rstrip("/") + pattern.removeprefix(directory) or "/"
    return (pattern,) if found == pattern else (pattern, found)


def settled(action: Action, resource: Resource) -> Resource:
    """Return the resource of a question with its paths as rules compare them; of lending, by a look at the disk."""
    if action not in LENDING:
        return resource
    name = real_path(resource.name) if action in PATH_RESOURCES else resource.name
    given = resource.attributes.get(PATH)
    if given is None and (action not in PATH_RESOURCES or not name.startswith("/")):
        return replace(resource, name=name)
    path: Value = name if given is None else _real(given)
    if action is Action.WORKSPACE_LEND and isinstance(path, str):
        name = path
    return Resource(name, {**resource.attributes, PATH: path})


def written(action: Action, name: str, attributes: Mapping[str, Value]) -> Resource:
    """Return the resource that a person has written in a question: ``~`` is expanded where paths are absolute."""
    if action not in LENDING:
        return Resource(name, attributes)
    told = {key: _each(value) if key == PATH else value for key, value in attributes.items()}
    return Resource(expanded(name) if action in PATH_RESOURCES else name, told)


def touched_by(tool: str, arguments: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Return the paths that the arguments of a file tool of ours name, as its gate would tell them; none otherwise."""
    if tool_plain(tool) not in READING_TOOLS | WRITING_TOOLS:
        return ()
    named = [value for key in _PATH_ARGUMENTS if isinstance(value := arguments.get(key), str) and value]
    return tuple(dict.fromkeys(map(_lexical, named or [LENT])))


def _lexical(path: str) -> str:
    """Return a relative path without what leads back in it; one that leads out as an absolute one."""
    if path.startswith("/"):
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return f"/{path}"
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts) or LENT


def _real(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(map(real_path, value))
    return real_path(value) if isinstance(value, str) else value


def _each(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(map(expanded, value))
    return expanded(value) if isinstance(value, str) else value
