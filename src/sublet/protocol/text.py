"""Text that comes from a peer: bounded and without anything that could steer a terminal or hide its order."""

from __future__ import annotations

import unicodedata

from sublet.protocol.patterns import Pattern

MAX_SUMMARY_CHARS = 16_000
MAX_LINE_CHARS = 2_000
MAX_NAME_CHARS = 255

_ESCAPES = Pattern(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, clipboard, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS and other strings
    r"|\x1b[@-Z\\-_]"
)
# Cc controls, Cf formatting (bidi marks, zero width), Cs lone surrogates, Co private use, Zl/Zp separators
_DROPPED = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
# What Unicode calls Default_Ignorable and does not put into Cf, and the blank Braille pattern. Variation selectors
# alone can carry a whole hidden message to a model.
_INVISIBLE = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2065, 0x2065),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xFFF0, 0xFFF8),
        (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
)
_NOTICE_CHARS = 40


def clean(text: str, limit: int = MAX_SUMMARY_CHARS) -> str:
    """Return ``text`` without terminal escapes, control, bidi and invisible characters, at most ``limit`` long.

    Newlines and tabs stay. A cut is announced in the text itself, so that nobody takes a part for the whole; the
    announcement counts towards ``limit``.
    """
    return _cut(_visible(text.replace("\r\n", "\n")), limit)


def clean_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """Return ``text`` as one clean line of at most ``limit`` characters, a cut announced."""
    # Spaces are joined first, so that a dropped carriage return does not glue two words, and last, because what was
    # dropped may have stood between two spaces.
    return _cut(" ".join(_visible(" ".join(text.split())).split()), limit)


def clean_name(raw: bytes | str) -> str:
    """Return a file name in a form that is safe to show; bytes that are not UTF-8 and controls appear as ``\\xNN``."""
    text = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
    return _cut(_with_escapes(text), MAX_NAME_CHARS * 4)


def _visible(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown = _ESCAPES.sub("", text)
    # Each character is judged once, however often it comes: dropping them is then one pass of C.
    return shown.translate(dict.fromkeys(ord(char) for char in set(shown) if char not in "\n\t" and _hidden(char)))


def _hidden(char: str) -> bool:
    return unicodedata.category(char) in _DROPPED or char in _INVISIBLE


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    if limit < _NOTICE_CHARS:
        return text[: max(limit - 1, 0)] + "…"[:limit]
    kept = limit - _NOTICE_CHARS
    return f"{text[:kept]}… [{len(text) - kept} more characters cut]"


def escape_text(raw: bytes | str) -> str:
    """Return text in full with all that ``clean`` drops written as escapes; newlines and tabs stay.

    For patches, where dropping a character would hide a change.
    """
    text = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
    return "\n".join(line if _plain(line) else _escaped_line(line) for line in text.split("\n"))


def _plain(line: str) -> bool:
    """Tell quickly that nothing of ``line`` is hidden; most lines of a patch are like that."""
    return line.isprintable() and (line.isascii() or _INVISIBLE.isdisjoint(line))


def _escaped_line(line: str) -> str:
    return _with_escapes(line, but="\t")


def _with_escapes(text: str, but: str = "") -> str:
    if text.isascii() and text.isprintable():
        return text
    # Each character is judged once, however often it comes: writing them is then one pass of C.
    return text.translate({ord(char): _escaped(char) for char in set(text) if char not in but and _hidden(char)})


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that surrogateescape kept
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
