"""Masks keep what is listed; repairs neither invent nor lose."""

from __future__ import annotations

import pytest

from sublet.policy.guardrail import repair
from sublet.policy.guardrail.mask import Mask
from sublet.policy.guardrail.repair import MAX_REPAIRS, repaired
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError


@pytest.mark.parametrize(
    ("fields", "value", "kept"),
    [
        (["/a"], {"a": {"x": [1]}, "b": 2}, {"a": {"x": [1]}}),
        (["/a/b", "/c"], {"a": {"b": 1, "d": 2}, "c": 3, "e": 4}, {"a": {"b": 1}, "c": 3}),
        (["/items/*/id"], {"items": [{"id": 1, "key": "s"}, {"key": "t"}, 5]}, {"items": [{"id": 1}, {}]}),
        (["/0"], ["a", "b"], ["a"]),
        (["/*/x"], {"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 1}}),
        (["/a~1b", "/c~0d"], {"a/b": 1, "c~d": 2, "a": 3}, {"a/b": 1, "c~d": 2}),
        (["/a/b"], {"a": "scalar"}, {}),
        (["/a"], "scalar", "scalar"),
        (["/a"], [{"a": 1}], []),
    ],
)
def test_a_mask_keeps_what_it_lists(fields: list[str], value: JsonValue, kept: JsonValue) -> None:
    assert Mask(tuple(fields)).kept(value) == kept


@pytest.mark.parametrize("fields", [(), ("a",), ("/" + "a" * 500,), ("/a",) * 257])
def test_a_mask_that_says_nothing_clear_is_refused(fields: tuple[str, ...]) -> None:
    with pytest.raises(SubletError, match="mask"):
        Mask(fields)


@pytest.mark.parametrize(
    ("schema", "value", "mended"),
    [
        ({"required": ["a"], "properties": {"a": {"default": {"x": []}}}}, {}, {"a": {"x": []}}),
        ({"required": ["a"], "properties": {"a": {"type": "string"}}}, {}, {}),
        ({"properties": {"a": {"default": 1}}}, {}, {}),
        ({"required": ["a"], "properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"default": 7}}}, {}, {"a": 7}),
        ({"allOf": [{"required": ["a"]}, {"properties": {"a": {"default": 1}}}]}, {}, {"a": 1}),
        ({"items": {"required": ["a"], "properties": {"a": {"default": 0}}}}, [{}, {"a": 1}], [{"a": 0}, {"a": 1}]),
        ({"type": "integer"}, "42", 42),
        ({"type": "integer"}, "042", "042"),
        ({"type": "integer"}, "4.5", "4.5"),
        ({"type": "integer"}, "9007199254740993", "9007199254740993"),
        ({"type": "integer"}, 4.5, 4.5),
        ({"type": "integer"}, True, True),
        ({"type": "number"}, " 0.1 ", 0.1),
        ({"type": "number"}, "0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "number"}, "nan", "nan"),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "yes", "yes"),
        ({"type": "boolean"}, 1, 1),
        ({"type": "null"}, "null", None),
        ({"type": "string"}, 42, "42"),
        ({"type": "string"}, False, "false"),
        ({"type": "string"}, True, "true"),
        ({"type": ["boolean", "string"]}, True, True),
        ({"type": ["number", "string"]}, 5, 5),
        ({"type": "array"}, '{"a": 1}', '{"a": 1}'),
        ({"type": "number"}, "0.1000000000000000055511151", "0.1000000000000000055511151"),
        ({"allOf": [{"type": "integer"}]}, "1", 1),
        ({"type": ["string", "integer"], "allOf": [{"type": "integer"}]}, "1", 1),
        ({"patternProperties": {"^a": {}}, "additionalProperties": {"type": "integer"}}, {"a": "1"}, {"a": "1"}),
        ({"type": "string"}, 0.5, 0.5),
        ({"type": "string"}, None, None),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a": "1"}', {"a": 1}),
        ({"type": "array"}, "1, 2", "1, 2"),
        ({"type": ["integer", "null"]}, "3", 3),
        ({"type": ["integer", "string"]}, "3", "3"),
        ({"type": ["boolean", "integer"]}, "1", 1),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}}, ["1", "true"], [1, True]),
        ({"additionalProperties": {"type": "integer"}}, {"a": "1"}, {"a": 1}),
        # which of several was meant would be a guess
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "1", "1"),
    ],
)
def test_a_repair_neither_invents_nor_loses(schema: dict[str, JsonValue], value: JsonValue, mended: JsonValue) -> None:
    found, done = repaired(value, CheckedSchema(schema))
    assert (found, type(found)) == (mended, type(mended))
    assert bool(done) == (mended != value)


def test_the_value_that_is_repaired_stays_as_it_was() -> None:
    value: JsonValue = {"a": {"b": "1"}}
    schema = CheckedSchema({"properties": {"a": {"properties": {"b": {"type": "integer"}}}}})
    assert repaired(value, schema)[0] == {"a": {"b": 1}}
    assert value == {"a": {"b": "1"}}


def test_repairs_are_bounded() -> None:
    found, done = repaired(["1"] * 1000, CheckedSchema({"items": {"type": "integer"}}))
    assert len(done) == MAX_REPAIRS
    assert isinstance(found, list)
    assert found[-1] == "1"
    circular = CheckedSchema({"allOf": [{"$ref": "#"}, {"$ref": "#"}], "items": {"$ref": "#"}})
    assert repaired([[["x"]]], circular)[0] == [[["x"]]]


@pytest.mark.parametrize(
    ("schema", "value", "done"),
    [
        ({"type": "integer"}, "1", ["converted the whole to integer"]),
        ({"type": "number"}, "0.5", ["converted the whole to number"]),
        ({"type": "string"}, True, ["converted the whole to string"]),
        ({"properties": {"a": {"items": {"type": "boolean"}}}}, {"a": ["true"]}, ["converted /a/0 to boolean"]),
        (
            {"required": ["a", "b"], "properties": {"a": {"default": 1}, "b": {"default": 2}}},
            {},
            ["filled /a from its default", "filled /b from its default"],
        ),
        (
            {"items": {"required": ["a"], "properties": {"a": {"default": "1", "type": "integer"}}}},
            [{}],
            ["filled /0/a from its default", "converted /0/a to integer"],
        ),
    ],
)
def test_what_was_done_is_told_with_its_place(schema: dict[str, JsonValue], value: JsonValue, done: list[str]) -> None:
    assert repaired(value, CheckedSchema(schema))[1] == done


def test_a_default_that_is_mended_stays_as_it_was() -> None:
    inner: JsonValue = {"default": {"x": ["1"]}, "properties": {"x": {"items": {"type": "integer"}}}}
    schema = CheckedSchema({"required": ["a"], "properties": {"a": inner}})
    assert repaired({}, schema)[0] == {"a": {"x": [1]}}
    assert schema.document["properties"]["a"]["default"] == {"x": ["1"]}


@pytest.mark.parametrize(("visits", "mended"), [(7, 2), (8, 3), (9, 3), (10, 4)])
def test_places_are_looked_at_within_a_bound(monkeypatch: pytest.MonkeyPatch, visits: int, mended: int) -> None:
    monkeypatch.setattr(repair, "MAX_VISITS", visits)
    found, done = repaired(["1"] * 6, CheckedSchema({"items": {"type": "integer"}}))
    assert found == [1] * mended + ["1"] * (6 - mended)
    assert len(done) == mended
