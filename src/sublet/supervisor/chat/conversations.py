"""Conversations that can be gone on with: one private file each, bounded in size, number and age."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sublet.disk.durable import write_durably
from sublet.disk.plain_file import read_plain
from sublet.protocol.patterns import Pattern
from sublet.supervisor.chat.endpoint import Message

MAX_BYTES: Final = 16 << 20
"""A conversation that is larger can't be gone on with."""
MAX_KEPT: Final = 256
MAX_AGE_SECONDS: Final = 30 * 86_400.0
VERSION: Final = 1
_ID = Pattern(r"chat_[0-9a-f]{32}")
_ROLES: Final = frozenset({"user", "assistant", "tool"})


def new_conversation_id() -> str:
    """Return an id that nobody can guess."""
    return f"chat_{secrets.token_hex(16)}"


class Conversations:
    """Every method blocks: call it in a thread.

    Args:
        directory: where they are; private, and made when first needed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, conversation_id: str, agent_id: str) -> list[Message] | None:
        """Return what was said, or None where it can't be gone on with: unknown, another agent's, or damaged."""
        if not _ID.fullmatch(conversation_id):
            return None
        try:
            raw = read_plain(self._path(conversation_id), MAX_BYTES, follow=False)
        except OSError:
            return None
        return read_conversation(raw, agent_id)

    def save(self, conversation_id: str, agent_id: str, messages: Sequence[Message]) -> bool:
        """Keep a conversation and remove the oldest beyond the bounds; tell whether it was kept.

        Raises:
            OSError: it can't be written.
        """
        body = {"version": VERSION, "agent": agent_id, "messages": list(messages)}
        raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        if len(raw) > MAX_BYTES:
            return False
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._path(conversation_id), raw)
        self._prune()
        return True

    def _path(self, conversation_id: str) -> Path:
        return self._directory / f"{conversation_id}.json"

    def _prune(self) -> None:
        found: list[tuple[float, Path]] = []
        for path in self._directory.glob("chat_*.json"):
            with suppress(OSError):
                found.append((path.lstat().st_mtime, path))
        found.sort(reverse=True)
        oldest = time.time() - MAX_AGE_SECONDS
        for number, (modified, path) in enumerate(found):
            if number >= MAX_KEPT or modified < oldest:
                path.unlink(missing_ok=True)


def read_conversation(raw: bytes, agent_id: str) -> list[Message] | None:
    """Return the messages of a kept conversation of ``agent_id``, or None where it is none."""
    try:
        body = json.loads(raw) if len(raw) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or body.get("version") != VERSION or body.get("agent") != agent_id:
        return None
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        return None
    return messages


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or value.get("role") not in _ROLES:
        return False
    if not isinstance(value.get("content"), str | None):
        return False
    calls = value.get("tool_calls", [])
    return isinstance(calls, list) and all(map(_is_call, calls))


def _is_call(value: object) -> bool:
    function = value.get("function") if isinstance(value, dict) else None
    return (
        isinstance(value, dict)
        and isinstance(value.get("id"), str)
        and isinstance(function, dict)
        and all(isinstance(function.get(name), str) for name in ("name", "arguments"))
    )
