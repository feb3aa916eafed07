"""What is one emoji: what a reaction of ours may be. Of others any short visible text is shown, as before.

There is no table of all emoji here, which would be old next year. One is known by the kinds of its signs: a symbol, or
one of the few that are emoji but other kinds of signs, with what may follow it (a skin tone, a selector, tags of a
flag), once or joined to others; two letters of a flag; or a digit in a key.
"""

from __future__ import annotations

import unicodedata
from typing import Final

JOINER: Final = "\u200d"
TAGS: Final = range(0xE0020, 0xE0080)
ALIASES: Final = {"+1": "\U0001f44d", "-1": "\U0001f44e"}
"""What people type for an emoji that their keyboard has not."""
_SELECTOR: Final = "\ufe0f"
_KEYCAP: Final = "\u20e3"
_KEYS: Final = frozenset("0123456789#*")
_TONES: Final = range(0x1F3FB, 0x1F400)
_LETTERS: Final = range(0x1F1E6, 0x1F200)
"""Of flags, two for each."""
_OTHER_KINDS: Final = frozenset(
    "\u203c\u2049\u2194\u25b7\u25c0\u25fb\u25fc\u25fd\u25fe\u2b05\u2b06\u2b07\u3030\u303d\u27a1\u2934\u2935"
)
"""Emoji that are no symbols by their kind: punctuation and signs of mathematics."""


def is_one_emoji(text: str) -> bool:
    """Tell whether a text is one emoji, in normal form C."""
    if text[:1] in _KEYS:
        return text[1:] in (_KEYCAP, _SELECTOR + _KEYCAP)
    if len(text) == 2 and all(ord(char) in _LETTERS for char in text):
        return True
    parts = text.split(JOINER)
    return all(_is_part(part) for part in parts)


def _is_part(text: str) -> bool:
    if not text or not (unicodedata.category(text[0]) == "So" or text[0] in _OTHER_KINDS) or ord(text[0]) in _LETTERS:
        return False
    rest = text[1:].replace(_SELECTOR, "", 1)
    if rest and ord(rest[0]) in _TONES:
        rest = rest[1:]
    return all(ord(char) in TAGS for char in rest)
