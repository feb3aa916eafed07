"""Regular expressions on an engine whose time grows with the text only (RE2), for all text that comes from elsewhere.

Python's ``re`` tries ways to match one after the other; a hostile text can make it try quadratically many, or more.
RE2 follows all ways at once. So ``src`` uses this module, and a test (``tests/attacks/test_net_patterns.py``) keeps
``re`` out of all but a short list of modules, with a reason for each.

Differences from ``re`` that a writer of patterns has to know:

- ``$`` is the very end of the text, and ``\\Z`` is the same here; neither matches before a last newline;
- ``\\d``, ``\\w``, ``\\s`` and ``\\b`` are ASCII; a letter of any script is ``\\pL``, a digit ``\\p{Nd}``;
- there is no look-around and no back-reference;
- a counted repetition is at most 1000.

A pattern is compiled when it is first used, so that a command that matches nothing does not load the engine.

Weak: each call reads the whole text once, so whoever reads a text piece by piece uses ``finditer``. A text of many
matches costs some microseconds for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, AnyStr, Final, Generic

from sublet.protocol.re2_engine import BadSource, anchors, engine

MADE: Final[list[Pattern[Any]]] = []
"""Every pattern that a module of ours makes as it is loaded, for the tests that try each."""

SPACE: Final = r"\t-\r\x{1c}-\x{20}\x{85}\pZ"
"""Inside of a class: what ``str.isspace`` calls space, in any script."""

_NOT_THERE: Final = (-1, -1)
_PRIVATE: Final = {0xD800 + i: 0x10D800 + i for i in range(0x800)}
"""Half a surrogate pair has no UTF-8. The engine sees a private character instead, so that nothing else equals it."""
_BACK: Final = {there: here for here, there in _PRIVATE.items()}


class Match(Generic[AnyStr]):
    """What matched, as ``re.Match`` tells it."""

    __slots__ = ("_before", "_pattern", "_spans", "_text")

    def __init__(self, pattern: Pattern[AnyStr], text: _Text[AnyStr], spans: Any, before: tuple[int, int]) -> None:
        self._pattern: Pattern[AnyStr] = pattern
        self._text: _Text[AnyStr] = text
        self._spans = spans
        self._before = before

    def __getitem__(self, group: int | str) -> Any:
        """Return what a group matched; None where it took no part."""
        span = self._span(group)
        return None if span == _NOT_THERE else self._text.part(*span)

    def group(self, group: int | str = 0) -> Any:
        """Return what a group matched; None where it took no part."""
        return self[group]

    def groups(self) -> tuple[Any, ...]:
        """Return what each group matched."""
        return tuple(self[number] for number in range(1, len(self._spans)))

    def start(self, group: int | str = 0) -> int:
        """Return where a group begins."""
        return self._text.index(self._span(group)[0], self._before)

    def end(self, group: int | str = 0) -> int:
        """Return where a group ends."""
        return self._text.index(self._span(group)[1], self._before)

    def _span(self, group: int | str) -> tuple[int, int]:
        found: tuple[int, int] = self._spans[group if isinstance(group, int) else self._pattern.groups[group]]
        return found


class _Text(Generic[AnyStr]):
    """A text as the engine reads it."""

    __slots__ = ("mapped", "narrow", "raw", "whole")

    def __init__(self, text: AnyStr) -> None:
        self.whole: AnyStr = text
        self.narrow: bool
        self.raw: bytes
        self.mapped = False
        if isinstance(text, bytes):
            self.raw, self.narrow = text, True
            return
        self.narrow = text.isascii()
        try:
            self.raw = text.encode()
        except UnicodeEncodeError:
            self.raw = text.translate(_PRIVATE).encode()
            self.mapped = True

    def part(self, start: int, end: int) -> AnyStr:
        """Return what is between two places of the engine's."""
        return self.whole[start:end] if self.narrow else self.shown(self.raw[start:end])

    def shown(self, raw: bytes) -> AnyStr:
        """Return the engine's bytes as text."""
        if isinstance(self.whole, bytes):
            return raw
        text = raw.decode()
        return text.translate(_BACK) if self.mapped else text

    def index(self, place: int, before: tuple[int, int]) -> int:
        """Return the index in the text of the engine's ``place``, from ``before``: a place and its index."""
        if self.narrow or place < 0:
            return place
        return before[1] + len(self.raw[before[0] : place].decode())


class BadPattern(ValueError):
    """A pattern that is none, or that the engine does not have."""


class Pattern(Generic[AnyStr]):
    """A regular expression over ``str``, or over bytes.

    Args:
        source: the expression.
        dot_all: a dot matches a newline too.
        ignore_case: letters match whatever their case.
        lines: ``^`` and ``$`` match at each line's ends.
        static: made by a module as it is loaded, for the process's whole life; False for what somebody has written.
    """

    __slots__ = ("_engine", "_groups", "source")

    def __init__(
        self,
        source: AnyStr,
        *,
        dot_all: bool = False,
        ignore_case: bool = False,
        lines: bool = False,
        static: bool = True,
    ) -> None:
        flags = "i" * ignore_case + "m" * lines + "s" * dot_all
        if isinstance(source, str):
            self.source: AnyStr = f"(?{flags}){source}" if flags else source
        else:
            self.source = b"(?" + flags.encode() + b")" + source if flags else source
        self._engine: Any = None
        self._groups: dict[str, int] | None = None
        if static:
            MADE.append(self)

    def match(self, text: AnyStr) -> Match[AnyStr] | None:
        """Return the match at the beginning of ``text``."""
        return self._one(text, 1)

    def fullmatch(self, text: AnyStr) -> Match[AnyStr] | None:
        """Return the match that is all of ``text``."""
        return self._one(text, 2)

    def search(self, text: AnyStr) -> Match[AnyStr] | None:
        """Return the first match anywhere in ``text``."""
        return self._one(text, 0)

    def finditer(self, text: AnyStr) -> Iterator[Match[AnyStr]]:
        """Yield all matches, which do not overlap."""
        return self._all(_Text(text))

    def findall(self, text: AnyStr) -> list[AnyStr]:
        """Return what matched, each time; of a pattern with a group, what that matched."""
        group = min(self._compiled.NumberOfCapturingGroups(), 1)
        return [found[group] for found in self.finditer(text)]

    def split(self, text: AnyStr) -> list[AnyStr]:
        """Return what is between the matches."""
        whole, at = _Text(text), 0
        pieces: list[AnyStr] = []
        for found in self._all(whole):
            start, end = found._span(0)
            pieces.append(whole.part(at, start))
            at = end
        pieces.append(whole.part(at, len(whole.raw)))
        return pieces

    def sub(self, repl: AnyStr | Callable[[Match[AnyStr]], AnyStr], text: AnyStr) -> AnyStr:
        """Return ``text`` with each match replaced; a backslash in ``repl`` is one."""
        whole, at = _Text(text), 0
        pieces: list[AnyStr] = []
        for found in self._all(whole):
            start, end = found._span(0)
            pieces.append(whole.part(at, start))
            pieces.append(repl(found) if callable(repl) else repl)
            at = end
        if not pieces:
            return text
        pieces.append(whole.part(at, len(whole.raw)))
        return text[:0].join(pieces)

    @property
    def groups(self) -> dict[str, int]:
        """The numbers of the groups that have names."""
        if self._groups is None:
            self._groups = {name.decode(): number for name, number in self._compiled.NamedCapturingGroups()}
        return self._groups

    def check(self) -> None:
        """Compile it now.

        Raises:
            BadPattern: it is no pattern, or one that the engine does not have.
        """
        _ = self._compiled

    @property
    def _compiled(self) -> Any:
        if self._engine is None:
            self._engine = _compile(self.source)
        return self._engine

    def _one(self, text: AnyStr, anchor: int) -> Match[AnyStr] | None:
        whole = _Text(text)
        spans = (self._engine or self._compiled).Match(anchors()[anchor], whole.raw, 0, len(whole.raw))
        return None if spans[0] == _NOT_THERE else Match(self, whole, spans, (0, 0))

    def _all(self, whole: _Text[AnyStr]) -> Iterator[Match[AnyStr]]:
        engine, anchor, size = self._compiled, anchors()[0], len(whole.raw)
        at, before = 0, (0, 0)
        while at <= size and (spans := engine.Match(anchor, whole.raw, at, size))[0] != _NOT_THERE:
            start, end = spans[0]
            # Each index is counted from the one before, so that all of them cost one pass.
            before = (start, whole.index(start, before))
            yield Match(self, whole, spans, before)
            at = end
            if start == end:  # a whole character on
                at += 1
                while not whole.narrow and at < size and whole.raw[at] & 0xC0 == 0x80:
                    at += 1


def glob(component: AnyStr, *, ignore_case: bool = False) -> Pattern[AnyStr]:
    """Return the pattern that ``fnmatch`` means by ``component``: ``*``, ``?`` and ``[…]``, over the whole text."""
    return Pattern(glob_source(component), ignore_case=ignore_case, static=False)


def glob_source(component: AnyStr) -> AnyStr:
    """Return the source of ``glob(component)``, which can be put beside others with ``|``."""
    if isinstance(component, bytes):
        # Latin-1 maps bytes to characters one to one; the engine reads patterns over bytes in the same way.
        return "".join(_glob_pieces(component.decode("latin-1"), 0xFF)).encode("latin-1")
    return "".join(_glob_pieces(component, 0x10FFFF))


def _glob_pieces(text: str, last: int) -> Iterator[str]:
    yield r"(?s:"
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            while text[at : at + 1] == "*":
                at += 1
            yield ".*"
        elif char == "?":
            yield "."
        elif char == "[" and (end := text.find("]", at + 1 + (text[at : at + 1] == "!"))) >= 0:
            yield _class(text[at:end], last)
            at = end + 1
        else:
            yield f"\\x{{{ord(char):x}}}" if not (char.isascii() and char.isalnum()) else char
    yield r")\z"


def _class(inside: str, last: int) -> str:
    """Return the class that stands between brackets; a range that ends before it begins holds nothing."""
    negated = inside.startswith("!")
    inside = inside[negated:]
    ranges, at = [], 0
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            ranges.append((ord(inside[at]), ord(inside[at + 2])))
            at += 3
        else:
            ranges.append((ord(inside[at]), ord(inside[at])))
            at += 1
    held = "".join(f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in ranges if low <= high)
    if not held:
        return "." if negated else f"[^\\x{{0}}-\\x{{{last:x}}}]"
    return f"[^{held}]" if negated else f"[{held}]"


def _compile(source: str | bytes) -> Any:
    if isinstance(source, bytes):
        raw = b"\\\\".join(part.replace(rb"\Z", rb"\z") for part in source.split(b"\\\\"))
    else:
        raw = _Text("\\\\".join(part.replace(r"\Z", r"\z") for part in source.split("\\\\"))).raw
    try:
        return engine(raw, latin=isinstance(source, bytes))
    except BadSource as error:
        raise BadPattern(f"the pattern can't be used: {str(error)[:200]}") from None
