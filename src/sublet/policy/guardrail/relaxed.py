"""Reads JSON as language models write it: one value at a place in a text, with every liberty that was taken named."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NoReturn

from sublet.protocol.canonical import MAX_DEPTH, JsonValue

_SPACE: Final = re.compile(r"[ \t\r\n\u00a0\ufeff]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD: Final = re.compile(r"[A-Za-z]+")
_WORDS: Final[dict[str, JsonValue]] = {"true": True, "false": False, "null": None}
_PYTHON_WORDS: Final[dict[str, JsonValue]] = {"True": True, "False": False, "None": None}
_DOUBLE: Final = "“”„‟«»\uff02"
_SINGLE: Final = "'‘’‚‛"  # noqa: RUF001 - these are meant
_PLAIN: Final = re.compile(rf"[^\\\x00-\x1f\"{_DOUBLE}{_SINGLE}]+")
"""Characters that mean nothing but themselves in any string."""
MAX_STEPS: Final = 1_000_000
"""Values, and pieces of strings; some tenths of a second."""
CHARS_A_STEP: Final = 16
"""Characters that the strict reader reads in the time of a step."""
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "'": "'"}
_HEX4: Final = re.compile(r"[0-9a-fA-F]{4}")
_BEHIND_A_STRING: Final = re.compile(r"[ \t\r\n\u00a0\ufeff]*(?:[,:}\]]|\Z)")
_GOES_ON: Final = frozenset(".+-")
"""What makes more than itself of the number before it, besides letters and digits."""


class Mend(StrEnum):
    """What was mended in the way a value is written."""

    SMART_QUOTES = "smart_quotes"
    SINGLE_QUOTES = "single_quotes"
    TRAILING_COMMA = "trailing_comma"
    CUT_OFF_STRING = "cut_off_string"
    CUT_OFF_CONTAINER = "cut_off_container"
    RAW_CONTROL = "raw_control_character"
    PYTHON_WORD = "python_word"


@dataclass(frozen=True, slots=True)
class Read:
    """A value, where it ended in the text, and what was mended to read it."""

    value: JsonValue
    end: int
    mends: frozenset[Mend]


class Unreadable(Exception):
    """There is no JSON value here, however generously it is read."""


class TooManySteps(Exception):
    """What is left of a text takes longer to read than anybody waits for it."""


class Steps:
    """How many more steps reading one reply may take, over all places at which a value is looked for."""

    def __init__(self, left: int = MAX_STEPS) -> None:
        self._left = left

    def take(self, count: int = 1) -> None:
        """Take one, or as many as something has cost.

        Raises:
            TooManySteps: there are none left.
        """
        self._left -= count
        if self._left < 0:
            raise TooManySteps


class _CutOff(Exception):
    """The text ended inside of something that can't be guessed: a number, a word, a key."""


@dataclass(slots=True)
class _Reader:
    text: str
    at: int
    steps: Steps
    mends: set[Mend] = field(default_factory=set)

    def value(self, depth: int) -> JsonValue:
        self.steps.take()
        if depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH}")
        self._skip()
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char == '"' or char in _DOUBLE or char in _SINGLE:
            return self._string()
        return self._scalar()

    def _peek(self) -> str:
        if self.at >= len(self.text):
            raise _CutOff
        return self.text[self.at]

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        if found:
            self.at = found.end()

    def _object(self, depth: int) -> JsonValue:
        found: dict[str, JsonValue] = {}
        self.at += 1
        try:
            while not self._ended("}", bool(found)):
                if self._peek() != '"' and self._peek() not in _DOUBLE + _SINGLE:
                    raise self._wrong()
                key = self._string()
                if Mend.CUT_OFF_STRING in self.mends:
                    # A key that is cut off is no key: what it would have been nobody knows.
                    self.mends.discard(Mend.CUT_OFF_STRING)
                    raise _CutOff
                self._skip()
                if self._peek() != ":":
                    raise self._wrong()
                self.at += 1
                value = self.value(depth + 1)
                if key in found:
                    raise Unreadable(f"the name {key[:100]!r} is there twice in one object")
                found[key] = value
        except _CutOff:
            self.mends.add(Mend.CUT_OFF_CONTAINER)
            self.at = len(self.text)
        return found

    def _array(self, depth: int) -> JsonValue:
        found: list[JsonValue] = []
        self.at += 1
        try:
            while not self._ended("]", bool(found)):
                found.append(self.value(depth + 1))
        except _CutOff:
            self.mends.add(Mend.CUT_OFF_CONTAINER)
            self.at = len(self.text)
        return found

    def _ended(self, closer: str, some: bool) -> bool:
        """Tell whether the container ends here; else stand before its next item."""
        self._skip()
        char = self._peek()
        if some and char == ",":
            self.at += 1
            self._skip()
            char = self._peek()
            if char == closer:
                self.mends.add(Mend.TRAILING_COMMA)
        elif some and char != closer:
            raise self._wrong()
        if char == closer:
            self.at += 1
            return True
        return False

    def _string(self) -> str:
        opener = self.text[self.at]
        self.at += 1
        closers = '"'
        if opener in _SINGLE:
            closers = _SINGLE
            self.mends.add(Mend.SINGLE_QUOTES if opener == "'" else Mend.SMART_QUOTES)
        elif opener in _DOUBLE:
            closers = '"' + _DOUBLE
            self.mends.add(Mend.SMART_QUOTES)
        parts: list[str] = []
        while True:
            self.steps.take()
            if plain := _PLAIN.match(self.text, self.at):
                parts.append(plain[0])
                self.at = plain.end()
            if self.at >= len(self.text):
                self.mends.add(Mend.CUT_OFF_STRING)
                return "".join(parts)
            char = self.text[self.at]
            self.at += 1
            if char in closers and (closers == '"' or self._closes()):
                return "".join(parts)
            if char == "\\":
                parts.append(self._escape())
                continue
            if char <= "\x1f":
                self.mends.add(Mend.RAW_CONTROL)
            parts.append(char)

    def _closes(self) -> bool:
        """Tell whether the quote that was just read ends its string: an apostrophe has a letter behind it."""
        return _BEHIND_A_STRING.match(self.text, self.at) is not None

    def _escape(self) -> str:
        if self.at >= len(self.text):
            return ""  # cut off within it; the string says so itself
        char = self.text[self.at]
        self.at += 1
        if char != "u":
            if char not in _ESCAPES:
                raise Unreadable(f"\\{char} is no escape of JSON")
            return _ESCAPES[char]
        code = self._hex()
        if code is None:
            return ""
        if 0xD800 <= code < 0xDC00 and self.text[self.at :] in ("", "\\"):
            self.at = len(self.text)
            return ""  # cut off between both halves of a character
        if 0xD800 <= code < 0xDC00 and self.text.startswith("\\u", self.at):
            self.at += 2
            low = self._hex()
            if low is None:
                return ""
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        if 0xD800 <= code < 0xE000:
            raise Unreadable("half of a surrogate pair is no character")
        return chr(code)

    def _hex(self) -> int | None:
        digits = _HEX4.match(self.text, self.at)
        if digits is None:
            if len(self.text) - self.at < 4:
                self.at = len(self.text)
                return None
            raise Unreadable("\\u is followed by four hexadecimal digits")
        self.at = digits.end()
        return int(digits[0], 16)

    def _scalar(self) -> JsonValue:
        number = _NUMBER.match(self.text, self.at)
        found = number or _WORD.match(self.text, self.at)
        if found is None:
            if self.text[self.at :].strip() == "-":
                raise _CutOff
            raise self._wrong()
        if found.end() == len(self.text):
            raise _CutOff  # more of it may have followed
        self.at = found.end()
        if number:
            if self.text[self.at] in _GOES_ON or self.text[self.at].isalnum():
                if re.fullmatch(r"\.|\.?[eE][+-]?", self.text[self.at :]):
                    raise _CutOff
                raise self._wrong()
            return strict_loads(number[0])
        if found[0] in _WORDS:
            return _WORDS[found[0]]
        if found[0] in _PYTHON_WORDS:
            self.mends.add(Mend.PYTHON_WORD)
            return _PYTHON_WORDS[found[0]]
        raise self._wrong()

    def _wrong(self) -> Unreadable:
        return Unreadable(f"unexpected {self.text[self.at : self.at + 20]!r}")


def read(text: str, start: int, steps: Steps | None = None) -> Read:
    """Return the object or array that begins at ``start``.

    A container that the text cuts off is closed, and what was cut off inside it is kept only where it is a string's
    beginning; half a number, word or key is left out.

    Raises:
        Unreadable: there is none.
        TooManySteps: more than ``steps`` has.
    """
    reader = _Reader(text, start, steps or Steps())
    try:
        value = reader.value(0)
    except _CutOff:
        raise Unreadable("the text ends before the value does") from None
    return Read(value, reader.at, frozenset(reader.mends))


def strict_loads(text: str) -> JsonValue:
    """Return what ``text`` says as JSON, strictly: no name twice, no NaN.

    Raises:
        Unreadable: it is none.
    """
    try:
        value: JsonValue = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Unreadable from None
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=lambda pairs: _unique(pairs), parse_constant=lambda name: _no_constant(name)
)


def strict_read(text: str, start: int, steps: Steps | None = None) -> Read:
    """Return the JSON value that begins at ``start``, read strictly.

    Raises:
        Unreadable: there is none.
        TooManySteps: more than ``steps`` has.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        # What was read in vain counts: a text may begin a value at each of its brackets and end none.
        if isinstance(error, RecursionError):
            cost = sys.getrecursionlimit()
        else:
            cost = (error.pos if isinstance(error, json.JSONDecodeError) else len(text)) - start
        (steps or Steps()).take(cost // CHARS_A_STEP)
        raise Unreadable from None
    return Read(value, end, frozenset())


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
