"""Names that come from elsewhere: a type of their own, made by one parser.

A peer chooses the names of the directories it lends and of the entries it sends. Such a name becomes a path of this
machine only as a ``ForeignName``, and every ``ForeignName`` is one plain component of a path: it can't climb, can't be
absolute and can't hold another component. It does not say that the name is free, visible or allowed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

MAX_NAME_BYTES: Final = 255
"""Of one component; no file system here takes more."""

_FIRST_PRINTABLE: Final = 0x20
_DELETE: Final = 0x7F
_RESERVED: Final = (b".", b"..")
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class MalformedName(ValueError):
    """The name is no plain component of a path; the text says why, and never holds the name."""


@dataclass(frozen=True, slots=True, order=True)
class ForeignName:
    """One component of a path, as ``parse_name`` has found it good. Nothing else makes one.

    Args:
        raw: the bytes of the name.
    """

    raw: bytes

    def __fspath__(self) -> str:
        """Return the name for ``pathlib`` and ``os``; bytes that are not UTF-8 stay what they are."""
        return os.fsdecode(self.raw)


def parse_name(name: str | bytes) -> ForeignName:
    """Return ``name`` as one component of a path.

    Args:
        name: as it came; text is taken as UTF-8, with surrogate escapes for other bytes.

    Raises:
        MalformedName: the name is empty, ``.`` or ``..``, holds a slash, a NUL or a control character, or has more than
            255 bytes.
    """
    try:
        raw = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else bytes(name)
    except UnicodeEncodeError:
        raise MalformedName("a name is no text") from None
    if not raw or raw in _RESERVED:
        raise MalformedName("a name is empty, or names a directory by dots")
    if len(raw) > MAX_NAME_BYTES:
        raise MalformedName(f"a name has more than {MAX_NAME_BYTES} bytes")
    if b"/" in raw:
        raise MalformedName("a name holds a slash")
    if any(byte < _FIRST_PRINTABLE or byte == _DELETE for byte in raw):
        raise MalformedName("a name holds a control character")
    return ForeignName(raw)


def parse_plain_name(name: str | bytes) -> ForeignName:
    """Return ``name`` as ``parse_name``, where it is also one that needs no quotes and hides nowhere.

    Args:
        name: as it came.

    Raises:
        MalformedName: as ``parse_name``; or the name begins with a dot or a dash, or holds something else than letters
            and digits of ASCII, dots, dashes and underscores.
    """
    parsed = parse_name(name)
    if not _PLAIN.issuperset(parsed.raw) or parsed.raw[:1] in (b".", b"-"):
        raise MalformedName("a name is not plain")
    return parsed
