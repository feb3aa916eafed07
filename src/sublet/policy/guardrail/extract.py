"""Finds the JSON in a reply: the whole of it, fenced blocks, or values between prose (SuperAgent 10, step 1)."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from sublet.policy.guardrail.relaxed import Mend, Steps, Unreadable, read, strict_loads, strict_read
from sublet.protocol.canonical import JsonValue, narrow

MAX_REPLY_CHARS: Final = 256 * 1024
"""A longer reply is a failure, never a reply of which only the beginning counts."""
MAX_CANDIDATES: Final = 32
MAX_STARTS: Final = 512
"""Brackets at which a value is looked for."""
_LABEL_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+.-")
_FENCES: Final = ("```", "~~~")
_BRACKETS: Final = ("{", "[")
_JSON_LABELS: Final = frozenset({"json", "json5", "jsonc"})


class ReplyPlace(IntEnum):
    """Where in a reply a value was found; the better place comes first."""

    WHOLE = 0
    JSON_FENCE = 1
    FENCE = 2
    PROSE = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value of a reply, where it was, and what was mended in the way it is written."""

    value: JsonValue
    place: ReplyPlace
    mends: frozenset[Mend]


def candidates(reply: str) -> list[Candidate]:
    """Return the values that ``reply`` may mean, in the order in which they are tried.

    Only outermost values count; what lies inside another is a part of it. A reply, or a fenced block, that is wholly
    JSON is one value, scalars included; prose holds objects and arrays only.

    Raises:
        TooManySteps: it is written so that looking for values in it takes too long.
    """
    text, steps = reply.strip().removeprefix("\ufeff").strip(), Steps()
    whole = list(_whole(text, ReplyPlace.WHOLE, steps))
    if whole and not (Mend.CUT_OFF_CONTAINER in whole[0].mends and any(map(text.__contains__, _FENCES))):
        return whole
    found = list(whole)
    for place, segment in _segments(text):
        block = list(_whole(segment.strip(), place, steps)) if place is not ReplyPlace.PROSE else []
        found += block or _scattered(segment, place, steps)
        if len(found) >= MAX_CANDIDATES:
            break
    found.sort(key=lambda one: one.place)
    return found[:MAX_CANDIDATES]


def _segments(text: str) -> Iterator[tuple[ReplyPlace, str]]:
    at, fences = 0, _Places(text, _FENCES)
    while (start := fences.after(at)) is not None:
        yield ReplyPlace.PROSE, text[at:start]
        behind = _run(text, start, text[start])
        label_end = _run(text, behind, _LABEL_CHARS)
        label = text[behind:label_end]
        end = text.find(text[start:behind], label_end)
        at = len(text) if end == -1 else end + behind - start
        body = text[label_end : None if end == -1 else end]
        place = ReplyPlace.JSON_FENCE if label.lower() in _JSON_LABELS else ReplyPlace.FENCE
        # A label that is part of the value, as in ```true```, stays with it.
        yield place, body if body.strip() else label
    yield ReplyPlace.PROSE, text[at:]


class _Places:
    """Where any of some short texts is, looked for from the front to the back, so that all looks cost one pass."""

    def __init__(self, text: str, wanted: Sequence[str]) -> None:
        self._text = text
        self._next = dict.fromkeys(wanted, -1)

    def after(self, at: int) -> int | None:
        """Return the first place at ``at`` or behind it."""
        for one, place in self._next.items():
            if place < at:
                found = self._text.find(one, at)
                self._next[one] = len(self._text) if found < 0 else found
        first = min(self._next.values())
        return first if first < len(self._text) else None


def _run(text: str, at: int, chars: Container[str]) -> int:
    """Return the end of the run of ``chars`` that begins at ``at``."""
    while at < len(text) and text[at] in chars:
        at += 1
    return at


def _whole(text: str, place: ReplyPlace, steps: Steps) -> Iterator[Candidate]:
    """Return the one value that ``text`` is from end to end."""
    try:
        yield _candidate(strict_loads(text), frozenset(), place)
        return
    except Unreadable:
        pass
    if text.startswith(_BRACKETS):
        try:
            mended = read(text, 0, steps)
            if mended.end == len(text):
                yield _candidate(mended.value, mended.mends, place)
        except Unreadable:
            return


def _scattered(text: str, place: ReplyPlace, steps: Steps) -> Iterator[Candidate]:
    at, brackets = 0, _Places(text, _BRACKETS)
    for _ in range(MAX_STARTS):
        start = brackets.after(at)
        if start is None:
            return
        at = start + 1
        for reader in (strict_read, read):
            try:
                found = reader(text, start, steps)
                yield _candidate(found.value, found.mends, place)
            except Unreadable:
                continue
            at = found.end
            break


def _candidate(read_as: JsonValue, mends: frozenset[Mend], place: ReplyPlace) -> Candidate:
    try:
        value = narrow(read_as)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no character
    except ValueError:
        raise Unreadable from None
    return Candidate(value, place, mends)
