"""Text that comes from a peer: bounded and without anything that could steer a terminal or hide its order."""

from __future__ import annotations

import re
import unicodedata

MAX_SUMMARY_CHARS = 16_000
MAX_LINE_CHARS = 2_000
MAX_NAME_CHARS = 255

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, clipboard, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS and other strings
    r"|\x1b[@-Z\\-_]"
)
# Cc controls, Cf formatting (bidi marks, zero width), Cs lone surrogates, Co private use, Zl/Zp separators
_DROPPED = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def clean(text: str, limit: int = MAX_SUMMARY_CHARS) -> str:
    """Return ``text`` without terminal escapes, control, bidi and invisible characters, cut to ``limit`` characters.

    Newlines and tabs stay. The cut is announced in the text itself, so that nobody takes a part for the whole.
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    kept = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _DROPPED)
    if len(kept) <= limit:
        return kept
    return f"{kept[:limit]}… [{len(kept) - limit} more characters cut]"


def clean_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """Return ``text`` as one clean line of at most ``limit`` characters."""
    return clean(" ".join(text.split()), limit)


def clean_name(raw: bytes | str) -> str:
    """Return a file name in a form that is safe to show; bytes that are not UTF-8 and controls appear as ``\\xNN``."""
    text = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
    shown = "".join(_escaped(c) if unicodedata.category(c) in _DROPPED else c for c in text)
    return shown[: MAX_NAME_CHARS * 4]


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that surrogateescape kept
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
