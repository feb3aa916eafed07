"""A call of an ACP agent in one line, as work: which tool, and which command or file.

Programs title their calls each in their own way (``tests/supervisor/recorded``): by the bare name of the tool, by a
sentence, or by nothing but the command or the file, which a word for the kind of the call then stands before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from acp.schema import ToolCallProgress, ToolCallStart, ToolCallUpdate

from sublet.protocol.canonical import JsonValue
from sublet.protocol.patterns import Pattern
from sublet.supervisor.acp.tool_calls import in_view
from sublet.supervisor.job import JobResource
from sublet.supervisor.tool_words import telling

Update = ToolCallStart | ToolCallProgress | ToolCallUpdate

_VERBS: Final[Mapping[str, str]] = {
    "read": "Read",
    "edit": "Edit",
    "delete": "Delete",
    "move": "Move",
    "search": "Search",
    "execute": "Run",
    "fetch": "Fetch",
}
_SAID: Final = frozenset({*_VERBS.values(), "Create", "Find", "List", "Update", "Write"})
"""Words with which a title says itself what is done."""
_OF_FILES: Final = frozenset({"read", "edit", "delete", "move"})
_NAME: Final = Pattern(r"[A-Za-z][A-Za-z0-9_:-]{0,99}\Z")


def call_line(title: str, kind: str, about: str) -> str:
    """Return what a call does.

    Args:
        title: the program's.
        kind: of the call, by the protocol.
        about: its command or file, where that is known.
    """
    verb = _VERBS.get(kind, "")
    if _NAME.match(title) and not about.endswith(title):
        return f"{title} {about}".strip()
    if not verb or title.partition(" ")[0] in _SAID:
        return title
    return f"{verb} {about or title}" if kind in _OF_FILES or kind == "execute" else f"{verb} {title}"


def subject(update: Update, resources: Sequence[JobResource]) -> str:
    """Return what a call is about, as far as an update tells: its command, or else its file and so on."""
    given: Mapping[str, JsonValue] = update.raw_input if isinstance(update.raw_input, dict) else {}
    root = str(resources[0].path)
    if found := telling(given):
        return _short(found, root)
    places = [] if str(update.kind or "") == "execute" else update.locations or []  # that is where it runs
    return next((_short(in_view(one.path, resources), f"{resources[0].name}") for one in places), "")


def short_title(title: str, resources: Sequence[JobResource]) -> str:
    """Return the first line of a title, with the files of the lease as relative to it."""
    first = title.partition("\n")[0]
    for root in (f"{resources[0].path}/", f"{str(resources[0].path).lstrip('/')}/"):
        first = first.replace(root, "")
    return first


def _short(path: str, root: str) -> str:
    if path == root:
        return "."
    return path.removeprefix(f"{root}/")
