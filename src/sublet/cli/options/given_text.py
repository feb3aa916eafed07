"""Text that a command is given, as arguments or on standard input: in UTF-8, or refused in these words."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_name

STDIN = "-"
"""The argument in whose place standard input is read."""


def text_of(given: str, limit: int, what: str) -> str:
    """Return a text that was given, from standard input where it is ``-``.

    Args:
        given: the argument.
        limit: characters that it may have; of a longer one, one more is returned.
        what: names it in messages, such as ``the prompt``.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: standard input is not UTF-8.
    """
    return from_stdin(limit, what) if given == STDIN else given


def from_stdin(limit: int, what: str) -> str:
    """Return up to one character more than ``limit`` of standard input, with line ends as ``\\n``.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: it is not UTF-8.
    """
    stdin = sys.stdin
    if stdin is None:  # closed by whoever started us
        return ""
    buffer = getattr(stdin, "buffer", None)
    try:
        if buffer is None:
            text = stdin.read(limit + 1)
            text.encode()
            return text
        # Not the stream's own decoder: what that does with other bytes depends on the locale.
        reader = io.TextIOWrapper(buffer, encoding="utf-8", errors="strict")
        try:
            return reader.read(limit + 1)
        finally:
            reader.detach()
    except UnicodeError as error:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"{what} on stdin is not text in UTF-8{_where(error)}",
            "Convert it, such as with `iconv -f latin1 -t utf-8`, or lend a file that holds it.",
        ) from None


def typed_line() -> str:
    """Return a line that was typed, in small letters; what is not UTF-8 in it is no letter that anybody asks for."""
    buffer = getattr(sys.stdin, "buffer", None)
    line = sys.stdin.readline() if buffer is None else buffer.readline().decode(errors="replace")
    return line.strip().lower()


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8; the path of something that is there may have any name.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` naming the first.
    """
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            if any(_is_there(part) for part in (argument, argument.partition("=")[2])):
                continue
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"an argument is not UTF-8, and no file here has that name: {clean_name(argument)[:200]}",
                "Write it in UTF-8; a terminal in another encoding needs one such as LANG=C.UTF-8.",
            ) from None


def not_utf8_name(name: str) -> SubletError | None:
    """Return the refusal of a file name that has to travel as text and is not UTF-8; None where it is."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"the name of the file is not UTF-8: {clean_name(name)[:200]}",
            "Rename it, or give a copy of it another name.",
        )
    return None


def _where(error: UnicodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f": byte 0x{error.object[error.start]:02x} in it begins no character"
    return ""


def _is_there(path: str) -> bool:
    try:
        return bool(path) and os.path.lexists(os.path.expanduser(path))
    except ValueError:
        return False


def at_terminal() -> bool:
    """Tell whether a person can be asked: both stdin, which may be closed, and stdout are a terminal."""
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and not stream.closed and stream.isatty() for stream in streams)
