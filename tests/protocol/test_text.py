"""Text of a peer: nothing in it steers a terminal, hides its order or its presence, or outgrows its bound."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.text import (
    MAX_LINE_CHARS,
    MAX_NAME_CHARS,
    MAX_SUMMARY_CHARS,
    clean,
    clean_line,
    clean_name,
    escape_text,
)

FORBIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
ESC, BEL, ST = "\x1b", "\x07", "\x1b\\"

limits = st.integers(0, 200)
# Every code point, surrogates too, with the dangerous ones drawn often.
hostile = st.lists(
    st.one_of(
        st.text(max_size=10),
        st.characters(categories=["Cc", "Cf", "Cs", "Co", "Zl", "Zp"]),
        st.sampled_from([ESC, "[", "]", BEL, ST, ";", "31m", "\r", "\n", "\t", "\x9b", "\u202e", "\u200b", "\ufe0f"]),
    ),
    max_size=40,
).map("".join)


def assert_harmless(text: str, *, kept: str) -> None:
    for char in text:
        assert char in kept or unicodedata.category(char) not in FORBIDDEN, f"U+{ord(char):04X}"


@given(hostile, limits)
def test_clean_keeps_nothing_dangerous_and_stays_within_its_limit(text: str, limit: int) -> None:
    cleaned = clean(text, limit)
    assert_harmless(cleaned, kept="\n\t")
    assert len(cleaned) <= limit


@given(hostile, limits)
def test_clean_line_is_one_line_within_its_limit(text: str, limit: int) -> None:
    line = clean_line(text, limit)
    assert_harmless(line, kept="")
    assert len(line) <= limit
    assert line == line.strip()


@given(hostile | st.binary(max_size=60))
def test_clean_name_is_harmless_and_bounded(raw: str | bytes) -> None:
    name = clean_name(raw)
    assert_harmless(name, kept="")
    assert len(name) <= 4 * MAX_NAME_CHARS


@given(hostile)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    assert clean_line(clean_line(text)) == clean_line(text)


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), max_size=200))
def test_plain_text_is_left_alone(text: str) -> None:
    assert clean(text) == text
    assert clean_name(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("\x1b[1;31mred\x1b[0m", "red", id="colour"),
        pytest.param("a\x1b[2J\x1b[Hb", "ab", id="clear the screen"),
        pytest.param("\x1b[38:2::1:2:3mx", "x", id="colour with colons"),
        pytest.param("\x1b]0;title\x07x", "x", id="title ended by BEL"),
        pytest.param("\x1b]52;c;ZXZpbA==\x1b\\x", "x", id="clipboard ended by ST"),
        pytest.param("\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\", "click", id="hyperlink"),
        pytest.param("\x1bPq#0;2\x1b\\x", "x", id="device control string"),
        pytest.param("\x1b_app\x1b\\x\x1b^pm\x1b\\", "x", id="application and privacy strings"),
        pytest.param("\x1bcx\x1b7", "cx7", id="resets lose their escape"),
        pytest.param("\x1b\x1b[31m[31mx", "[31mx", id="an escape put together by removing another"),
        pytest.param("\x1b]0;never ended", "0;never ended", id="string without an end"),
        pytest.param("\x9b31mx\x9d0;y\x9c", "31mx0;y", id="eight-bit controls"),
        pytest.param("user\u202efdp.exe", "userfdp.exe", id="right-to-left override"),
        pytest.param("\u2066a\u2069\u200f\u061c", "a", id="bidi isolates and marks"),
        pytest.param("pa\u200bss\u200d\u2060\ufeffword\u00ad", "password", id="zero width"),
        pytest.param("\U000e0041\U000e0042hi\U000e007f", "hi", id="tag characters"),
        pytest.param("h\ufe00i\U000e0100\U000e01ef", "hi", id="variation selectors"),
        pytest.param("\u3164a\uffa0\u115f\u1160b\u2800\u034f", "ab", id="invisible letters and fillers"),
        pytest.param("a\x00b\x08c\x7f", "abc", id="NUL, backspace, delete"),
        pytest.param("good\rbad", "goodbad", id="carriage return cannot overwrite"),
        pytest.param("a\r\nb\tc", "a\nb\tc", id="line ends and tabs stay"),
        pytest.param("a\u2028b\u2029c", "abc", id="line and paragraph separators"),
        pytest.param("\ud800x\ue000", "x", id="surrogates and private use"),
        pytest.param(
            "na\u00efve \u65e5\u672c\u8a9e \u05e9\u05dc\u05d5\u05dd \U0001f600", None, id="writing of the world"
        ),
    ],
)
def test_clean(text: str, expected: str | None) -> None:
    assert clean(text) == (text if expected is None else expected)


def test_a_cut_is_announced_with_what_is_missing() -> None:
    cut = clean("x" * 1_000, 100)
    kept = cut.index("\u2026")
    assert cut == "x" * kept + f"\u2026 [{1_000 - kept} more characters cut]"
    assert 50 <= kept < len(cut) <= 100
    assert "cut" in clean("x" * (MAX_SUMMARY_CHARS + 1))
    assert clean("x" * MAX_SUMMARY_CHARS) == "x" * MAX_SUMMARY_CHARS


@pytest.mark.parametrize(("limit", "expected"), [(0, ""), (1, "\u2026"), (5, "xxxx\u2026")])
def test_a_short_limit_still_shows_a_cut(limit: int, expected: str) -> None:
    assert clean("x" * 1_000, limit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  two\n\nlines\t", "two lines"),
        ("good\rbad", "good bad"),
        ("a\u2028b\x85c", "a b c"),
        ("\x1b[1m  hi \x1b[0m  there\u200b ", "hi there"),
        ("\n\x00 \u202e", ""),
    ],
)
def test_clean_line(text: str, expected: str) -> None:
    assert clean_line(text) == expected


def test_a_long_line_is_cut() -> None:
    assert len(clean_line("x" * 10_000)) <= MAX_LINE_CHARS
    assert clean_line("x" * 10_000).endswith("cut]")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"src/app.py", "src/app.py"),
        ("caf\u00e9".encode(), "caf\u00e9"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"a\nb\x1b[2J", "a\\x0ab\\x1b[2J"),
        ("invoice\u202efdp.exe", "invoice\\u202efdp.exe"),
        ("a\u200b", "a\\u200b"),
        ("a\ufe0f\u3164", "a\\ufe0f\\u3164"),
        ("\U000e0041", "\\U000e0041"),
        ("\x85\u2028", "\\x85\\u2028"),
        ("", ""),
    ],
)
def test_clean_name(raw: bytes | str, expected: str) -> None:
    assert clean_name(raw) == expected


@given(hostile | st.binary(max_size=60))
def test_escape_text_hides_nothing_and_steers_nothing(raw: str | bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
    shown = escape_text(raw)
    assert_harmless(shown, kept="\n\t")
    assert len(shown) >= len(text)
    assert clean(shown, len(shown)) == shown


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("+a\tb\n-c\n", "+a\tb\n-c\n"),
        ("+x = 1\r\n", "+x = 1\\x0d\n"),
        ("+if admin\u202e:\n+\u200b", "+if admin\\u202e:\n+\\u200b"),
        ("+a\ufe0f", "+a\\ufe0f"),
        (b"+\xff\x1b[2J", "+\\xff\\x1b[2J"),
    ],
)
def test_escape_text(raw: bytes | str, expected: str) -> None:
    assert escape_text(raw) == expected


def test_a_long_name_is_cut_visibly() -> None:
    assert clean_name("x" * 5_000).endswith("cut]")


def test_cleaning_takes_time_in_proportion_to_the_text() -> None:
    """Starts of escapes that never end must not each scan the rest: this would take minutes."""
    text = ("\x1b]" + "\x1b[0" + "\x1bP" + "0;" * 10) * 20_000
    assert ESC not in clean(text)
