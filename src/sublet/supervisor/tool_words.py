"""A tool call in one line: which tool, and the command, file, pattern or address that it is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean_line

MAX_LINE_CHARS: Final = 240
_TELLING: Final = (
    "command",
    "file_path",
    "filePath",
    "notebook_path",
    "abs_path",
    "path",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
)
"""Arguments that say what a call is about, the most telling ones first."""


def tool_line(name: str, given: Mapping[str, JsonValue], root: str = "") -> str:
    """Return the call in one line, without line breaks and control characters.

    Args:
        name: as the agent's program calls the tool.
        given: its arguments.
        root: directory below which paths are told as relative to it.
    """
    shown = clean_line(name, 80)
    about = subject_of(given, root)
    return clean_line(f"{shown} {about}" if about else shown, MAX_LINE_CHARS)


def subject_of(given: Mapping[str, JsonValue], root: str = "") -> str:
    """Return what a call is about: its command, or else its file and so on, or else all that is given, where short."""
    if found := telling(given, root):
        return found
    if given and len(text := json.dumps(dict(given), ensure_ascii=False, default=str)) <= MAX_LINE_CHARS // 2:
        return text
    return ""


def telling(given: Mapping[str, JsonValue], root: str = "") -> str:
    """Return the argument that tells what a call is about; empty where none does."""
    for key in _TELLING:
        value = given.get(key)
        if isinstance(value, list):
            words = [word for word in value if isinstance(word, str)]
            value = " ".join(words) if len(words) == len(value) else None
        if isinstance(value, str) and value.strip():
            if root and value.startswith(f"{root}/"):
                value = value[len(root) + 1 :]
            return clean_line(value.strip(), MAX_LINE_CHARS)
    return ""
