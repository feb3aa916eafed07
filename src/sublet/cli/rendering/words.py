"""Words and bounds that several views share."""

from __future__ import annotations

MAX_FILES_SHOWN = 40
DELETED = "deleted_by_author"
"""Status of a message whose author has deleted it (ezagent 4.3)."""


def own_version() -> str:
    """Return what ``sublet --version`` prints."""
    from importlib.metadata import version

    return f"sublet {version('sublet')}"


def count(number: int, noun: str, several: str = "") -> str:
    """Return ``1 file``, ``2 files``; ``several`` is the plural where it is not made by an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {several or noun + 's'}"
