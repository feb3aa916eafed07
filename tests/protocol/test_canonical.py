"""Canonical JSON: the same value is the same bytes on both sides, or it is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.canonical import MAX_DEPTH, JsonValue, canonical_json, narrow
from support.awcp_strategies import SAFE_INTEGER, any_json, signable
from support.protobuf import through_struct

# Code point order and UTF-16 order (RFC 8785) differ only when a key beyond the BMP meets one in U+E000..U+FFFF.
KEY_ORDER: dict[str, JsonValue] = {"\uff61": 1, "\U0001f600": 2, "a": 3}
UTF16_ORDER = '{"a":3,"\U0001f600":2,"\uff61":1}'


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def shuffled(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


def test_keys_are_sorted_by_utf16_code_units() -> None:
    assert canonical_json(KEY_ORDER) == UTF16_ORDER.encode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"b": 1, "a": {"d": [], "c": {}}}, b'{"a":{"c":{},"d":[]},"b":1}', id="nested keys, no spaces"),
        pytest.param([3, 1, 2], b"[3,1,2]", id="arrays keep their order"),
        pytest.param(
            '\u20ac$\x0f\nA\'B"\\\\"/', b'"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"', id="RFC 8785 3.2.2.2"
        ),
        pytest.param("\x08\t\n\x0c\r\x00\x1f\x7f", b'"\\b\\t\\n\\f\\r\\u0000\\u001f\x7f"', id="controls"),
        pytest.param("e\u0301", b'"e\xcc\x81"', id="no normalisation"),
        pytest.param([True, False, None], b"[true,false,null]", id="literals"),
        pytest.param([0, -1, SAFE_INTEGER, -SAFE_INTEGER], b"[0,-1,9007199254740991,-9007199254740991]", id="integers"),
    ],
)
def test_form(value: JsonValue, expected: bytes) -> None:
    assert canonical_json(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(0.5, id="fraction"),
        pytest.param(100.0, id="whole float that nobody narrowed"),
        pytest.param({"a": [math.nan]}, id="nan"),
        pytest.param(math.inf, id="infinity"),
        pytest.param(2**53, id="integer that a double cannot tell from its neighbour"),
        pytest.param(-(2**53), id="negative one"),
        pytest.param("\ud800", id="lone surrogate"),
        pytest.param({"\udfff": 1}, id="lone surrogate as key"),
        pytest.param(nested(MAX_DEPTH + 1), id="too deep"),
        pytest.param(nested(50_000), id="far too deep"),
    ],
)
def test_what_has_no_canonical_form_is_refused(value: JsonValue) -> None:
    with pytest.raises(ValueError, match=r"fraction|beyond|surrogates|deeper"):
        canonical_json(value)


def test_the_deepest_allowed_value_passes() -> None:
    assert json.loads(canonical_json(nested(MAX_DEPTH))) == nested(MAX_DEPTH)


@given(signable)
def test_parsing_gives_the_value_back(value: JsonValue) -> None:
    assert json.loads(canonical_json(value)) == value


@given(signable)
def test_the_order_in_which_keys_were_added_does_not_matter(value: JsonValue) -> None:
    assert canonical_json(shuffled(value)) == canonical_json(value)


@given(signable)
def test_a_protobuf_struct_does_not_change_the_bytes(value: JsonValue) -> None:
    """A2A carries data parts as protobuf: every number comes back as a double, keys in any order."""
    body = {"value": value}
    assert canonical_json(narrow(through_struct(body))) == canonical_json(body)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(60.0, 60), (-0.0, 0), (float(SAFE_INTEGER), SAFE_INTEGER), (0.5, 0.5), (True, True), ([{"a": 1.0}], [{"a": 1}])],
)
def test_whole_floats_become_integers(value: JsonValue, expected: JsonValue) -> None:
    narrowed = narrow(value)
    assert narrowed == expected
    assert type(narrowed) is type(expected)
    assert repr(narrowed) == repr(expected)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(math.nan, id="nan"),
        pytest.param(math.inf, id="infinity"),
        pytest.param(1e300, id="huge float"),
        pytest.param(2.0**53, id="float at the bound"),
        pytest.param(2**53, id="integer at the bound"),
        pytest.param(10**5000, id="integer that Python does not print"),
        pytest.param(nested(MAX_DEPTH), id="too deep"),
        pytest.param(nested(50_000), id="far too deep"),
    ],
)
def test_what_cannot_be_carried_faithfully_is_refused(value: JsonValue) -> None:
    with pytest.raises(ValueError, match=r"finite|beyond|deeper"):
        narrow({"a": value})


@given(any_json)
def test_narrow_gives_a_stable_value_or_a_value_error(value: JsonValue) -> None:
    try:
        narrowed = narrow(value)
    except ValueError:
        return
    assert narrow(narrowed) == narrowed


@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer()))
def test_fractions_are_kept_by_narrow_and_refused_by_canonical_json(number: float) -> None:
    assert narrow(number) == number
    with pytest.raises(ValueError, match="fraction"):
        canonical_json(number)


VECTORS = sorted(path for path in Path(__file__).parent.rglob("*.json") if path.name != "settled.json")
_numbers = st.one_of(st.integers(), st.integers(-(2**54), 2**54), st.just(-0), st.floats())
_texts = st.text(st.characters(), max_size=12)
_any_value = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)),
    max_leaves=20,
)


def by_the_library(value: Any) -> bytes | None:
    try:
        return rfc8785.dumps(value)
    except (ValueError, RecursionError):
        return None


def holds_fraction(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(map(holds_fraction, value.values()))
    return any(map(holds_fraction, value)) if isinstance(value, list) else isinstance(value, float)


@given(_any_value)
def test_another_implementation_gives_the_same_bytes(value: JsonValue) -> None:
    """Ours refuses fractions, for which it is stricter on purpose; apart from that the two take the same values."""
    try:
        ours = canonical_json(value)
    except ValueError:
        assert holds_fraction(value) or by_the_library(value) is None
    else:
        assert by_the_library(value) == ours


def values_in(value: JsonValue) -> list[JsonValue]:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(found for item in inner for found in values_in(item))]


@pytest.mark.parametrize("file", VECTORS, ids=lambda file: file.stem)
def test_another_implementation_gives_the_same_bytes_for_the_vectors(file: Path) -> None:
    values = [value for value in values_in(json.loads(file.read_text())) if not holds_fraction(value)]
    assert len(values) > 3
    assert [canonical_json(value) for value in values] == [by_the_library(value) for value in values]


@pytest.mark.parametrize(
    "value", [KEY_ORDER, '\u20ac$\x0f\nA\'B"\\\\"/', "\x7f\x80\u2028", 2**53 - 1, {"": {}, "a": []}, -0]
)
def test_another_implementation_agrees_on_what_is_easily_wrong(value: JsonValue) -> None:
    assert by_the_library(value) == canonical_json(value)


@pytest.mark.parametrize("value", [2**53, -(2**53), 10**400, math.nan, math.inf, "\ud800", {"\udfff": 1}])
def test_another_implementation_refuses_the_same(value: JsonValue) -> None:
    assert by_the_library(value) is None
    with pytest.raises(ValueError, match=r"fraction|beyond|surrogates"):
        canonical_json(value)


def test_depth_is_bounded_here_alone() -> None:
    assert by_the_library(nested(MAX_DEPTH + 1)) is not None
    with pytest.raises(ValueError, match="deeper"):
        canonical_json(nested(MAX_DEPTH + 1))
