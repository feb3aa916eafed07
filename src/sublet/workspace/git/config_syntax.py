"""The syntax of git's configuration files, read without git: bytes in, entries out, in one pass.

It follows git's own reader (``config.c``): sections and keys in lower case, subsections as they are, quotes, escapes,
comments, and lines that go on. Where git would stop with an error, nothing is returned. Files that are included are not
read. A value with a NUL, which git cuts there, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

Setting = tuple[str, str | None]
"""The whole name of a key, such as ``remote.origin.url``, and its value; None for a key alone, which means true."""

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = ord("\n")
_SPACES: Final = frozenset(b" \t\n\r")
_BLANKS: Final = frozenset(b" \t")
_LETTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_KEY: Final = _LETTERS | frozenset(b"0123456789-")
_COMMENT: Final = frozenset(b"#;")
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_ESCAPES: Final = {ord("t"): 9, ord("b"): 8, ord("n"): 10, _BACKSLASH: _BACKSLASH, _QUOTE: _QUOTE}


class _Malformed(Exception):
    """Git would read no further, and say so."""


def settings(content: bytes, limit: int) -> list[Setting]:
    """Return the first ``limit`` settings of a configuration file; none where git would refuse the file.

    Args:
        content: the file.
        limit: how many settings are returned; the rest is still looked at.
    """
    found: list[Setting] = []
    try:
        for name, value in _Reader(content).settings():
            if len(found) < limit and b"\0" not in name and (value is None or b"\0" not in value):
                found.append(
                    (name.decode("utf-8", "replace"), None if value is None else value.decode("utf-8", "replace"))
                )
    except _Malformed:
        return []
    return found


class _Reader:
    """Reads one file; ``_next`` gives a line end at the end of it, once and for ever."""

    def __init__(self, content: bytes) -> None:
        self._content = content.removeprefix(_BOM).replace(b"\r\n", b"\n")
        self._at = 0

    def settings(self) -> Iterator[tuple[bytes, bytes | None]]:
        base = b""
        while self._at < len(self._content):
            char = self._next()
            if char in _SPACES:
                continue
            if char in _COMMENT:
                self._skip_line()
            elif char == ord("["):
                base = self._section() + b"."
            elif char in _LETTERS:
                key, value = self._setting(char)
                yield base + key, value
            else:
                raise _Malformed

    def _next(self) -> int:
        at = self._at
        self._at += 1
        return self._content[at] if at < len(self._content) else _LINE_END

    def _skip_line(self) -> None:
        end = self._content.find(b"\n", self._at)
        self._at = len(self._content) if end < 0 else end + 1

    def _section(self) -> bytes:
        name = bytearray()
        while True:
            if self._at >= len(self._content):
                raise _Malformed
            char = self._next()
            if char == ord("]"):
                return bytes(name).lower()
            if char in _SPACES:
                return bytes(name).lower() + b"." + self._subsection(char)
            if char not in _KEY and char != ord("."):
                raise _Malformed
            name.append(char)

    def _subsection(self, char: int) -> bytes:
        while char in _SPACES:
            if char == _LINE_END:
                raise _Malformed
            char = self._next()
        if char != _QUOTE:
            raise _Malformed
        name = bytearray()
        while (char := self._next()) != _QUOTE:
            if char == _BACKSLASH:
                char = self._next()
            if char == _LINE_END:
                raise _Malformed
            name.append(char)
        if self._next() != ord("]"):
            raise _Malformed
        return bytes(name)

    def _setting(self, char: int) -> tuple[bytes, bytes | None]:
        key = bytearray()
        while char in _KEY:
            key.append(char)
            char = self._next()
        while char in _BLANKS:
            char = self._next()
        if char == _LINE_END:
            return bytes(key).lower(), None
        if char != ord("="):
            raise _Malformed
        return bytes(key).lower(), self._value()

    def _value(self) -> bytes:
        value = bytearray()
        quoted, spaces = False, 0
        while True:
            char = self._next()
            if char == _LINE_END:
                if quoted:
                    raise _Malformed
                return bytes(value)
            if char in _SPACES and not quoted:
                spaces += bool(value)
                continue
            if char in _COMMENT and not quoted:
                self._skip_line()
                return bytes(value)
            value += b" " * spaces
            spaces = 0
            if char == _BACKSLASH:
                escaped = self._next()
                if escaped == _LINE_END:
                    continue
                if escaped not in _ESCAPES:
                    raise _Malformed
                value.append(_ESCAPES[escaped])
            elif char == _QUOTE:
                quoted = not quoted
            else:
                value.append(char)
