"""Command lines as conditions compare them: word by word, and one simple command only (SuperAgent 6.2).

What allows a command by a pattern allows no second command beside it, no redirection and nothing that the shell makes
of a word: such a line has no words here, and an allow does not match it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sublet.policy.attributes import AROUND_A_COMMAND, UNCLEAR, WORDS_BESIDE
from sublet.policy.decision import Value
from sublet.policy.globs import defect, matcher

COMMAND_LINES: Final = frozenset({"args.command", "args.cmd", "args.command_line", "args.commandline"})
"""Attributes that hold what a shell reads."""
_NESTED: Final = (*AROUND_A_COMMAND, *(f"{name}." for name in WORDS_BESIDE))
_REST: Final = "*"
_NOT_SIMPLE: Final = frozenset(";&|<>()$`\\{}*?[]\n\r")
_QUOTES: Final = frozenset("'\"")
_NOT_IN_A_PATTERN: Final = (_NOT_SIMPLE | _QUOTES) - frozenset("*?[]")
_IN_DOUBLE_QUOTES: Final = frozenset("$`\\")


def words(line: str) -> tuple[str, ...] | None:
    """Return the words of one simple command; None where a shell would do more with the line than start it."""
    found: list[list[str]] = []
    inside, at = False, 0
    while at < len(line):
        char = line[at]
        if char in " \t":
            inside = False
            at += 1
            continue
        if not inside:
            if char in "~#":
                return None
            found.append([])
            inside = True
        if char in _QUOTES:
            end = line.find(char, at + 1)
            piece = line[at + 1 : end]
            if end == -1 or "\n" in piece or (char == '"' and not _IN_DOUBLE_QUOTES.isdisjoint(piece)):
                return None
            found[-1].append(piece)
            at = end + 1
        elif char in _NOT_SIMPLE or not char.isprintable() or (char == "~" and line[at - 1] in "=:"):
            return None
        else:
            found[-1].append(char)
            at += 1
    return tuple("".join(word) for word in found) or None


def command_of(name: str, attributes: Mapping[str, Value]) -> tuple[str, ...] | None:
    """Return the words of the command that a call starts; None where it is more than one simple command.

    Args:
        name: attribute that holds the command line, or the program whose words are in an attribute beside it.
        attributes: of the call.
    """
    given = attributes.get(name)
    if UNCLEAR in attributes or any(other.startswith(_NESTED) for other in attributes):
        return None  # another environment can make another program of the same words
    beside: list[str] = []
    for other in WORDS_BESIDE:
        more = attributes.get(other)
        if more is None:
            continue
        if not isinstance(more, tuple):
            return None
        beside += more
    if isinstance(given, tuple):
        return (*given, *beside)
    if not isinstance(given, str):
        return None
    if beside:
        return (given, *beside)
    return words(given)


def command_matcher(pattern: str) -> Callable[[Sequence[str]], bool]:
    """Return the test of a command's words against ``pattern``, word by word; ``*`` alone is one or more words."""
    parts = pattern.split()
    tests = [None if part == _REST else _text(part) for part in parts]

    def matches(command: Sequence[str]) -> bool:
        places = {0}
        for word in command:
            after: set[int] = set()
            for place in places:
                if place < len(tests):
                    test = tests[place]
                    if test is None or test(word):
                        after.add(place + 1)
                if place and tests[place - 1] is None:
                    after.add(place)
            places = after
            if not places:
                return False
        return len(tests) in places

    return matches


def command_defect(pattern: str) -> str:
    """Return why a pattern over command lines can allow nothing, or nothing."""
    if not _NOT_IN_A_PATTERN.isdisjoint(pattern):
        return "it is matched with the words of one simple command, without quotes, ';', '|', '$' and the like"
    return defect(pattern.strip()) or ("" if pattern.split() else "it has no word")


def _text(part: str) -> Callable[[str], bool]:
    """Return the test of one word. A pattern that begins with a slash is one over paths elsewhere; here it is text."""
    text = part.lstrip("/")
    slashes, matches = part.removesuffix(text), matcher(text)
    return lambda word: word.startswith(slashes) and matches(word.removeprefix(slashes))
