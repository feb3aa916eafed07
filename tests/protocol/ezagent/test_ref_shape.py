"""What a ref may hold, field by field, and how one is read that does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.protocol.ezagent import ids
from sublet.protocol.ezagent.ref_shape import (
    LAST_MS,
    NO_CONTENT,
    fits,
    is_json,
    mended,
    misfit,
    moment_ms,
    told_ms,
)
from sublet.protocol.ezagent.yjs.vectors import closed, fork_of

REF = ids.ref_id(1_771_668_300_123, bytes(10))
AT = "2026-02-21T10:05:00.123Z"
GOOD: dict[str, Any] = {
    "ref_id": REF, "author": "@a:b", "created_at": AT, "content_type": "immutable", "content_id": NO_CONTENT,
    "status": "active", "signature": "ed25519:x", "ext.reactions": {"a": [1, None]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (AT, 1_771_668_300_123),
        ("2026-02-21T10:05:00Z", 1_771_668_300_000),
        ("1970-01-01T00:00:00.000Z", 0),
        ("2999-12-31T23:59:59.999Z", LAST_MS),
        ("3000-01-01T00:00:00.000Z", None),
        ("1969-12-31T23:59:59.999Z", None),
        ("2026-02-30T10:05:00.000Z", None),
        ("2026-02-21T10:05:00.12Z", None),
        ("2026-02-21T10:05:00.123", None),
        ("2026-02-21 10:05:00.123Z", None),
        ("2026-02-21T10:05:00.123Z\n", None),
        (5, None),
        (None, None),
    ],
)
def test_times_of_the_protocol(value: object, ms: int | None) -> None:
    assert moment_ms(value) == ms
    assert fits("created_at", value) is (ms is not None)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("status", ["a", "x" * 64, "~!"], ["", "x" * 65, "a b", "\u00e9", "a\n", 5, None]),
        ("content_type", ["immutable", "x" * 64], ["", "x" * 65, "a b", 5]),
        ("signature", ["", "x" * 128], ["x" * 129, "a b", None]),
        ("content_id", [NO_CONTENT], ["sha256:x", "", 5]),
        ("ref_id", [REF, f"ulid:{REF}", ids.ref_id(LAST_MS, bytes(10))], [ids.ref_id(LAST_MS + 1, bytes(10)), "x", 5]),
        ("author", ["", "@a:b"], [5, None]),
        ("ext.a", [None, 1, "x", {"a": [True]}, []], [b"x", {"a": b"x"}, [b"x"], [[b"x"]]]),
        ("ext." + "a" * 128, [1], []),
        ("ext." + "a" * 129, [], [1]),
        ("ext.", [], [1]),
        ("ext.a b", [], [1]),
        ("other", [], [1, "x"]),
    ],
)
def test_what_a_field_may_hold(name: str, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in (*good, *bad) if fits(name, value)] == good


def test_a_ref_has_all_its_fields_and_each_fits() -> None:
    assert misfit(GOOD) is None
    assert misfit({name: value for name, value in GOOD.items() if name != "signature"}) is None
    for name in GOOD:
        if name not in ("signature", "ext.reactions"):
            assert misfit({other: value for other, value in GOOD.items() if other != name}) == name
        assert misfit({**GOOD, name: b"bytes"}) == name
    assert misfit({**GOOD, "other": 1}) == "other"


def test_a_ref_that_does_not_fit_is_read_as_far_as_it_does() -> None:
    assert mended(GOOD, REF, "@a:b") == GOOD
    assert mended({**GOOD, "author": "@eve:b", "ref_id": "x"}, REF, "@a:b") == GOOD
    assert mended({"status": 5, "other": 1, "ext.a": b"x", "created_at": "then"}, REF, "@a:b") == {
        "ref_id": REF, "author": "@a:b", "created_at": AT,
        "content_type": "unknown", "content_id": NO_CONTENT, "status": "unknown",
    }  # fmt: skip


def test_the_time_of_an_id_that_can_be_told() -> None:
    assert [told_ms(ref) for ref in (REF, ids.ref_id(LAST_MS, bytes(10)), ids.ref_id(LAST_MS + 1, bytes(10)), "x")] == [
        1_771_668_300_123, LAST_MS, 0, 0,
    ]  # fmt: skip
    assert is_json([{"a": 1}, "x"])


def test_a_clock_of_a_vector_tells_of_a_fork_or_of_none() -> None:
    half = (2**32 - 1) // 2
    for fork in (0, 1, half - 1, half):
        assert fork_of(closed(fork)) == fork
    assert fork_of(closed(half + 5)) == half
    assert (fork_of(half), fork_of(half + 1), fork_of(0)) == (None, half, None)
