"""Patterns of names and paths: what they can never match, what they cover, and what they begin with."""

from __future__ import annotations

import pytest

from sublet.policy.globs import (
    MAX_PATH_CHARS,
    components,
    covers,
    defect,
    literal_directory,
    literal_prefix,
    matcher,
    may_match_below,
    needed_literal,
    path_defect,
    within,
)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "empty"),
        (" a", "space"),
        ("a ", "space"),
        ("a\x1fb", "control"),
        ("a\x7fb", "control"),
        ("a[b", "closed"),
        ("[", "closed"),
        ("[]", "closed"),
        ("[b", "closed"),
        ("[ab]x[cd", "closed"),
        ("a[é]", "ASCII"),
        ("[é][b]", "ASCII"),
        ("[a][é][b]", "ASCII"),
        ("a[b-a]", "'[b-a]' is empty"),
        ("[ab]x[d-c]", "'[d-c]' is empty"),
        ("[a-cz-y]", "'[a-cz-y]' is empty"),
        ("/a/", "slash at its end"),
        ("/a//b", "empty component"),
        ("/a/./b", "'.'"),
        ("/a/../b", "'..'"),
        ("/a**", "whole components"),
    ],
)
def test_what_can_never_match_is_told_with_the_reason(pattern: str, why: str) -> None:
    assert why in defect(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a",
        "a b",
        "a\x80b",
        "a~b",
        "[a]",
        "[]a]",
        "[a-a]",
        "[-a]",
        "[-az]",
        "[b-]",
        "[z-]",
        "a[bc]d[ef]",
        "[ab][cd]",
        "/",
        "/a/**",
        "/**/b",
        "a//b",
    ],
)
def test_what_can_match_has_no_defect(pattern: str) -> None:
    assert defect(pattern) == ""


@pytest.mark.parametrize("pattern", ["", "/", ".", "a", "a/**", "**", ".a", "a..b"])
def test_a_path_that_can_be_there_has_no_defect(pattern: str) -> None:
    assert path_defect(pattern) == ""


@pytest.mark.parametrize("pattern", ["a/", "//", "./a", "a/..", "..", "a**", "**a/b"])
def test_a_path_that_can_not_be_there_has_one(pattern: str) -> None:
    assert path_defect(pattern)


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("*", "anything[ab]", True),
        ("a[bc]", "a[bc]", True),
        ("a*", "ab", True),
        ("a*", "ab*", True),
        ("a*", "a?", True),
        ("a*", "b*", False),
        ("a*", "*", False),
        ("a?", "a*", False),
        ("a[bc]", "a?", False),
        ("*b", "ab*", False),
        # A pattern of names says nothing about one of paths, whatever both begin with.
        ("/*", "/**", False),
        ("/a/**", "/a/*", True),
        ("/a/**", "/a/b/**", True),
        ("/a/**", "/a/b", True),
        ("/a/**", "/a", True),
        ("/a/**", "/ab/*", False),
        ("/a/*", "/a/b*", False),
        ("/*/**", "/*/b*", False),
        ("/a/**", "/b", False),
        ("*", "/a*", True),
        ("/ab*/**", "/ab*/c*", False),
    ],
)
def test_what_a_pattern_covers(wide: str, narrow: str, covered: bool) -> None:
    assert covers(wide, narrow) is covered


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("a?*", None), ("ab*", "ab"), ("*", ""), ("ab", None), ("a*b*", None), ("[ab]*", None), ("/a*", None)],
)
def test_a_pattern_of_names_may_have_a_beginning(pattern: str, prefix: str | None) -> None:
    assert literal_prefix(pattern) == prefix


@pytest.mark.parametrize(
    ("pattern", "directory"),
    [("/a/b", "/a/b"), ("/a/b/*", "/a/b"), ("/a/b*/c", "/a"), ("/*", "/"), ("/a[bc]", "/"), ("/a/b/c?", "/a/b")],
)
def test_the_directory_above_all_wildcards(pattern: str, directory: str) -> None:
    assert literal_directory(pattern) == directory


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/*", "/a/b"),
        ("/a/b*", "/a/b"),
        ("ab*abc?a", "abc"),
        ("*", ""),
        ("x[abcdef]yz", "yz"),
        ("/aX*", "/aX"),
        ("b*aaa", "aaa"),
    ],
)
def test_the_text_that_every_match_contains(pattern: str, text: str) -> None:
    assert needed_literal(pattern) == text


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "", True),
        ("*", "/a", True),
        ("ab", "ab", True),
        ("ab", "abc", False),
        ("ab*", "abc", True),
        ("ab*", "xab", False),
        ("a?c", "abc", True),
        ("a?c", "abcd", False),
        ("/a", "a", False),
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/b/c", False),
    ],
)
def test_a_name_is_matched_as_a_whole(pattern: str, name: str, matches: bool) -> None:
    assert matcher(pattern)(name) is matches


@pytest.mark.parametrize("long", ["", "/" + "x" * MAX_PATH_CHARS], ids=["remembered", "too long to be remembered"])
def test_components_of_a_path(long: str) -> None:
    rest = (long[1:],) if long else ()
    assert components("/a//./b" + long) == ("a", "b", *rest)
    assert components("/a/../b" + long) is None
    assert components("/a\0b" + long) is None
    assert components("") is None
    assert components("/") == ()


@pytest.mark.parametrize(
    ("path", "scope", "absolute", "inside"),
    [
        ("/a/b", ("a",), True, True),
        ("/a", ("a",), True, True),
        ("/ab", ("a",), True, False),
        ("a/b", ("a",), True, False),
        ("a/b", ("a",), False, True),
        ("/a/b", ("a",), False, False),
        ("/b/a", ("a",), True, False),
        ("/a/..", ("a",), True, None),
        ("/", (), True, True),
    ],
)
def test_whether_a_path_lies_in_a_scope(path: str, scope: tuple[str, ...], absolute: bool, inside: bool | None) -> None:
    assert within(path, scope, absolute=absolute) is inside


@pytest.mark.parametrize(
    ("pattern", "path", "may"),
    [
        ("/a/b/c", "/a", True),
        ("/a/b/c", "/a/b", True),
        ("/a/b/c", "/x", False),
        ("/**/c", "/x", True),
        ("/a/*", "a", False),
        ("a/*", "a", True),
        ("a/*", "/a", False),
        ("/a/b", "/x/..", True),
    ],
)
def test_whether_a_pattern_may_match_below_a_directory(pattern: str, path: str, may: bool) -> None:
    assert may_match_below(pattern, path) is may
