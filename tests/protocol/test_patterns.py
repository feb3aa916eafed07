"""Patterns find what ``re`` and ``fnmatch`` find, at the same places, in every script and over bytes."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol import patterns, re2_engine
from sublet.protocol.patterns import BadPattern, Pattern, glob, glob_source

SOURCES = ["a", "a*", "(a)|(b)", "(?P<one>a+)(?P<two>b?)", "[^a]", "", "b$", "^a", "a.b", "(é|😀)+", "😀?", r"\n"]
TEXTS = st.text(st.sampled_from("ab é😀\n\ud800"), max_size=8)
PIECES = st.lists(st.sampled_from(["a", "b", "A", "-", "!", "]", "[", "*", "?", ".", "é", "\n", "\\"]), max_size=6)


def told(found: Any, groups: int) -> Any:
    """Say the same of a match of ours and of ``re``."""
    if found is None:
        return None
    return [(found[group], found.start(group), found.end(group)) for group in range(groups + 1)]


@pytest.mark.parametrize("source", SOURCES)
@given(TEXTS)
def test_a_pattern_finds_what_re_finds(source: str, text: str) -> None:
    ours, other = Pattern(source, static=False), re.compile(source.replace("$", r"\Z"))
    for way in ("match", "fullmatch", "search"):
        assert told(getattr(ours, way)(text), other.groups) == told(getattr(other, way)(text), other.groups)
    places = [(found.start(), found.end(), found[0], found.groups()) for found in ours.finditer(text)]
    wanted = [(found.start(), found.end(), found[0], found.groups()) for found in _without_overlap(other, text)]
    assert places == wanted
    assert ours.sub("<\\1>", text) == _put(text, wanted, "<\\1>")
    assert ours.sub(lambda found: f"({found.group()})", text) == _put(text, wanted, None)
    assert ours.findall(text) == [groups[0] if groups else whole for _, _, whole, groups in wanted]
    assert ours.groups == other.groupindex


def _without_overlap(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Search as RE2 does: behind an empty match it goes on a character further, behind another at its end."""
    found, at = [], 0
    while at <= len(text) and (one := pattern.search(text, at)):
        if pattern.pattern.startswith("^") and one.start():
            break
        found.append(one)
        at = one.end() + (one.start() == one.end())
    return found


def _put(text: str, places: list[tuple[int, int, str, Any]], by: str | None) -> str:
    pieces, at = [], 0
    for start, end, whole, _ in places:
        pieces += [text[at:start], f"({whole})" if by is None else by]
        at = end
    return "".join([*pieces, text[at:]])


@pytest.mark.parametrize(
    ("source", "text", "pieces"),
    [(",", "a,b,,c", ["a", "b", "", "c"]), (" +", "é  😀 x", ["é", "😀", "x"]), (",", "", [""]), (",", "a", ["a"])],
)
def test_what_is_between_matches(source: str, text: str, pieces: list[str]) -> None:
    assert Pattern(source, static=False).split(text) == pieces
    assert Pattern(source.encode(), static=False).split(text.encode()) == [piece.encode() for piece in pieces]


def test_matches_have_groups_by_number_and_by_name() -> None:
    found = Pattern(r"(?P<year>\d+)-(?P<month>\d+)?(x)?", static=False).search("é 2026-11")
    assert found
    assert (found["year"], found.group("month"), found[3]) == ("2026", "11", None)
    assert found.groups() == ("2026", "11", None)
    assert (found.start("month"), found.end("month"), found.start(), found.end()) == (7, 9, 2, 9)
    assert (found.start(3), found.end(3)) == (-1, -1)


@pytest.mark.parametrize("many", ["a", b"a"])
def test_flags_say_how_letters_lines_and_dots_are_taken(many: Any) -> None:
    def of(text: str) -> Any:
        return text if isinstance(many, str) else text.encode()

    def finds(source: str, text: str, **flags: bool) -> bool:
        return Pattern(of(source), static=False, **flags).search(of(text)) is not None

    assert finds("A", "a", ignore_case=True)
    assert not finds("A", "a")
    assert finds("^b$", "a\nb", lines=True)
    assert not finds("^b$", "a\nb")
    assert finds("a.b", "a\nb", dot_all=True)
    assert not finds("a.b", "a\nb")
    assert finds("^B.$", "a\nb\n", dot_all=True, lines=True, ignore_case=True)


@pytest.mark.parametrize(
    ("source", "text", "whole"),
    [(r"a\Z", "a", True), (r"a\Z", "a\n", False), (r"a\\Z", "a\\Z", True), (r"a$", "a\n", False)],
)
def test_the_end_is_the_very_end(source: str, text: str, whole: bool) -> None:
    assert bool(Pattern(source, static=False).search(text)) == whole
    assert bool(Pattern(source.encode(), static=False).search(text.encode())) == whole


def test_half_a_surrogate_pair_is_a_character_that_equals_nothing_else() -> None:
    assert Pattern("\ud800", static=False).fullmatch("\ud800")
    assert not Pattern("\ud800", static=False).fullmatch("\udc00")
    found = Pattern("a(.)", static=False).search("é\udfffa\ud800b")
    assert found
    assert (found[1], found.start(1), found.end(1)) == ("\ud800", 3, 4)


@pytest.mark.parametrize("source", ["(", "[", "a**", r"(a)\1", "(?=a)", "a{1001}", b"(", b"[a"])
def test_what_the_engine_does_not_have_is_told(source: Any) -> None:
    with pytest.raises(BadPattern, match=r"can't be used: ."):
        Pattern(source, static=False).check()
    with pytest.raises(BadPattern):
        Pattern(source, static=False).search(source)


def test_patterns_of_modules_are_remembered_and_no_others() -> None:
    before = list(patterns.MADE)
    try:
        Pattern("other", static=False)
        glob("*")
        assert list(patterns.MADE) == before
        assert patterns.MADE[-1] is not (kept := Pattern("a"))
        assert list(patterns.MADE) == [*before, kept]
    finally:
        patterns.MADE[:] = before


@given(PIECES, st.lists(st.sampled_from("abA-!][.é\n\\"), max_size=4))
def test_globs_are_those_of_fnmatch(pieces: list[str], chars: list[str]) -> None:
    pattern, text = "".join(pieces), "".join(chars)
    assert bool(glob(pattern).match(text)) == fnmatch.fnmatchcase(text, pattern)
    assert bool(glob(pattern, ignore_case=True).match(text)) == fnmatch.fnmatchcase(
        text.lower(), pattern.lower()
    ) or any("[" in one for one in pieces)
    raw, narrow = pattern.encode("latin-1"), text.encode("latin-1")
    assert bool(glob(raw).match(narrow)) == fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "fits", "not_"),
    [
        ("[!a]", "b\n!é", "a"),
        ("[!]a]", "b", "]a"),
        ("[]a]", "]a", "b"),
        ("[a-c]", "abc", "d-"),
        ("[a-]", "a-", "b"),
        ("[-a]", "a-", "b"),
        ("[c-a]", "", "abc"),
        ("[!c-a]", "abc", ""),
        ("[a-cx]", "abcx", "d"),
        ("[xa-c]", "abcx", "d"),
        ("[a", "", "a["),
        ("?", "a\né", ""),
    ],
)
def test_classes_of_globs(pattern: str, fits: str, not_: str) -> None:
    assert [char for char in fits + not_ if glob(pattern).match(char)] == list(fits)
    assert glob_source("a*") == r"(?s:a.*)\z"
    assert glob_source(b"a?") == rb"(?s:a.)\z"


@pytest.mark.parametrize("inner", [True, False])
def test_both_ways_to_the_engine_say_the_same(inner: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re2_engine.missing() == []
    re2_engine.anchors.cache_clear()
    if not inner:
        monkeypatch.setattr(re2_engine, "PARTS", ("NoSuchPart",))
        assert re2_engine.missing() == ["_re2.RE2.NoSuchPart"]
        assert re2_engine.anchors() == (0, 1, 2)
    try:
        one = re2_engine.engine(rb"(?P<name>b+)(c)?", latin=False)
        anywhere, beginning, whole = re2_engine.anchors()
        assert list(one.Match(anywhere, b"abbd", 0, 4)) == [(1, 3), (1, 3), (-1, -1)]
        assert next(iter(one.Match(beginning, b"abbd", 0, 4))) == (-1, -1)
        assert next(iter(one.Match(beginning, b"abbd", 1, 4))) == (1, 3)
        assert next(iter(one.Match(whole, b"bbd", 0, 3))) == (-1, -1)
        assert next(iter(one.Match(whole, b"bbc", 0, 3))) == (0, 3)
        assert one.NumberOfCapturingGroups() == 2
        assert dict(one.NamedCapturingGroups()) in ({b"name": 1}, {"name": 1})
        accent = "é".encode()
        assert next(iter(re2_engine.engine(accent, latin=False).Match(anywhere, accent, 0, 2))) == (0, 2)
        assert next(iter(re2_engine.engine(b"^.$", latin=True).Match(anywhere, b"\xff", 0, 1))) == (0, 1)
        with pytest.raises(re2_engine.BadSource, match=r"missing|parenthesis|\("):
            re2_engine.engine(b"(", latin=False)
        with pytest.raises(re2_engine.BadSource):
            re2_engine.engine(b"((a{100}){100}){100}", latin=False)
    finally:
        re2_engine.anchors.cache_clear()
