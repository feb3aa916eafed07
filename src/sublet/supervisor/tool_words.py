"""A tool call in one line: which tool, and the command, file, pattern or address that it is about."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from typing import Final

from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean_line

MAX_LINE_CHARS: Final = 240
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash"})
_SCRIPT_WORDS: Final = 3
"""Of a shell that is given a script: itself, ``-c`` or ``-lc``, and the script."""
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


def as_typed(command: object) -> str:
    """Return a command as it would be typed: what a shell is given as its script, and else its words."""
    words: object = command
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:
            words = None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        if len(words) == _SCRIPT_WORDS and os.path.basename(words[0]) in _SHELLS and words[1].endswith("c"):
            return str(words[2]).strip()
        if not isinstance(command, str):
            return " ".join(words)
    return command.strip() if isinstance(command, str) else ""


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
        if key == "command" or isinstance(value, list):
            value = as_typed(value)
        if isinstance(value, str) and value.strip():
            if root and value.startswith(f"{root}/"):
                value = value[len(root) + 1 :]
            return clean_line(value.strip(), MAX_LINE_CHARS)
    return ""
