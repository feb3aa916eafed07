"""Times as they are written down, and what of somebody else's text is one."""

from __future__ import annotations

import pytest

from sublet.protocol.times import NO_TIME, rfc3339_of, rfc3339_of_ms, told_moment, told_time, unix_ms, unix_seconds

AT = 1_771_668_300.123
TEXT = "2026-02-21T10:05:00.123Z"


def test_a_time_is_written_in_utc_with_milliseconds() -> None:
    assert rfc3339_of(AT) == rfc3339_of_ms(1_771_668_300_123) == TEXT
    assert unix_seconds(TEXT) == AT
    assert unix_ms(TEXT) == 1_771_668_300_123


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TEXT, TEXT),
        ("2026-02-21T12:05:00.123+02:00", TEXT),
        ("2026-02-21T10:05:00.123", TEXT),
        ("2026-02-21 10:05:00.123456Z", TEXT),
        ("0001-12-31T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("0002-01-01T00:00:00Z", "0002-01-01T00:00:00.000Z"),
        ("9998-12-31T00:00:00Z", "9998-12-31T00:00:00.000Z"),
        ("9999-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("0001-01-01T00:00:00+14:00", "1970-01-01T00:00:00.000Z"),
        ("yesterday", "1970-01-01T00:00:00.000Z"),
        ("", "1970-01-01T00:00:00.000Z"),
        (None, "1970-01-01T00:00:00.000Z"),
        (5, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_what_names_no_moment_is_told_as_1970(text: object, told: str) -> None:
    assert told_time(text) == told
    if isinstance(text, str):
        assert (told_moment(text) == NO_TIME) is (told == "1970-01-01T00:00:00.000Z")


def test_a_time_of_ours_has_a_zone() -> None:
    with pytest.raises(ValueError, match="needs a time zone"):
        unix_seconds("2026-02-21T10:05:00")
    for text in ("x", "0001-01-01T00:00:00"):
        assert unix_ms(text) is None or text != "x"
    assert unix_ms("x") is None
