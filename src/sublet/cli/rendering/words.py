"""Words and bounds that several views share."""

from __future__ import annotations

from sublet.protocol.text import clean_line

MAX_FILES_SHOWN = 40
DELETED = "deleted_by_author"
"""Status of a message whose author has deleted it (ezagent 4.3)."""


def count(number: int, noun: str, several: str = "") -> str:
    """Return ``1 file``, ``2 files``; ``several`` is the plural where it is not made by an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {several or noun + 's'}"


def whole_line(text: str) -> str:
    """Return somebody else's words as one clean line of which nothing is cut; columns fit it to a terminal."""
    return clean_line(text, len(text) + 1)
