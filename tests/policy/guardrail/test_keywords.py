"""Keywords with bounds say what those of ``jsonschema`` say, and each step of theirs is counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sublet.policy.guardrail.keywords import MAX_MESSAGE_CHARS, MAX_STEPS, Budget, TooMuch
from sublet.policy.guardrail.schema import CheckedSchema

NAMES = st.sampled_from(["a", "b", "ab", "x1"])
SIMPLE = st.sampled_from(
    [True, False, {}, {"type": "string"}, {"type": "integer"}, {"const": 1}, {"minimum": 2}, {"required": ["a"]}]
)
ITEMS = st.sampled_from([0, 1, 2, "a", "b", None, True, [1], {"a": 1}])


def _within(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, min_size=1, max_size=2)
    named = st.dictionaries(NAMES, inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": named,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "1$", "b"]), inner, max_size=2),
            "additionalProperties": inner,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
            "prefixItems": few,
            "items": inner,
            "contains": inner,
            "uniqueItems": st.booleans(),
            "pattern": st.sampled_from(["^a", "b$"]),
            "dependentSchemas": named,
            "allOf": few,
            "anyOf": few,
            "oneOf": few,
            "if": inner,
            "then": inner,
            "else": inner,
            "not": inner,
        },
    )


SCHEMAS = st.recursive(SIMPLE, _within, max_leaves=10).filter(lambda schema: isinstance(schema, dict))
OBJECTS = st.dictionaries(NAMES, ITEMS, max_size=3)
ARRAYS = st.lists(ITEMS, max_size=4)


@given(SCHEMAS, OBJECTS | ARRAYS | ITEMS)
def test_a_schema_says_what_the_library_says(schema: dict[str, Any], value: Any) -> None:
    wrong = CheckedSchema(schema).issues(value)
    assert bool(wrong) != Draft202012Validator(schema).is_valid(value)


UNEVALUATED: list[dict[str, Any]] = [
    {"properties": {"a": {}}},
    {"patternProperties": {"^a": {}}},
    {"additionalProperties": {"type": "integer"}},
    {"unevaluatedProperties": {"type": "integer"}},
    {"$ref": "#/$defs/a"},
    {"$dynamicRef": "#some"},
    {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
    {"anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {}}}]},
    {"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}, "b": {}}}]},
    {"if": {"properties": {"a": {"const": 1}}}, "then": {"properties": {"b": {}}}},
    {"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "else": {"properties": {"x1": {}}}},
    {"dependentSchemas": {"a": {"properties": {"b": {}}}}},
    {"prefixItems": [{}]},
    {"prefixItems": [{}, {}, {}]},
    {"items": {"type": ["integer", "string"]}},
    {"contains": {"type": "string"}},
    {"contains": {"const": 9}, "minContains": 0},
    {"unevaluatedItems": {"type": "string"}},
]
VALUES: list[Any] = [
    {},
    {"a": 1},
    {"a": 2},
    {"b": 1},
    {"a": 1, "b": 2},
    {"a": 2, "b": "x"},
    {"a": "x", "b": 1, "ab": 3},
    {"x1": 5},
    {"a": {"z": 1}},
    [],
    [1],
    ["a", 2],
    [1, "a", 2],
    [{"a": 1}, {"q": 1}],
    "text",
    7,
]


@pytest.mark.parametrize("within", ["", "allOf", "anyOf", "$ref", "if", "then"])
@pytest.mark.parametrize("inner", UNEVALUATED, ids=lambda schema: " ".join(schema))
def test_what_is_evaluated_is_what_the_library_has_evaluated(inner: dict[str, Any], within: str) -> None:
    applied: dict[str, dict[str, Any]] = {
        "": inner,
        "allOf": {"allOf": [inner, True]},
        "anyOf": {"anyOf": [inner, False]},
        "$ref": {"$ref": "#/$defs/inner"},
        "if": {"if": inner, "else": False},
        "then": {"if": True, "then": inner, "else": False},
    }
    defs = {"a": {"properties": {"a": {}, "b": {}}}, "d": {"$dynamicAnchor": "some", "properties": {"a": {}}}}
    for keyword in ("unevaluatedProperties", "unevaluatedItems"):
        for last in (False, {"type": "string"}):
            if keyword in applied[within]:
                continue
            schema = {**applied[within], keyword: last, "$defs": {**defs, "inner": inner}}
            checked, library = CheckedSchema(schema), Draft202012Validator(schema)
            for value in VALUES:
                assert bool(checked.issues(value)) != library.is_valid(value), (schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "path", "keyword"),
    [
        ({"unevaluatedProperties": False}, {"a": 1}, "/a", "unevaluatedProperties"),
        ({"unevaluatedItems": False}, [1], "/0", "unevaluatedItems"),
        ({"patternProperties": {"^a": {"type": "string"}}}, {"a": 1}, "/a", "type"),
        ({"additionalProperties": {"type": "string"}}, {"b/c": 1}, "/b~1c", "type"),
        ({"additionalProperties": False}, {"a": 1}, "", "additionalProperties"),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], "", "uniqueItems"),
        ({"items": {"pattern": "^a"}}, ["a", "b"], "/1", "pattern"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(schema: dict[str, Any], value: Any, path: str, keyword: str) -> None:
    [issue] = CheckedSchema(schema).issues(value)
    assert (issue.path, issue.keyword) == (path, keyword)


@pytest.mark.parametrize(
    ("schema", "value", "steps"),
    [
        ({"type": "integer"}, 1, 1),
        ({"type": "integer", "minimum": 1}, 1, 2),
        ({"pattern": "a"}, "a", 2),
        ({"pattern": "a"}, "a" * 32, 4),
        ({"patternProperties": {"a": {}}}, {"a": 1, "b": 1}, 3),
        ({"patternProperties": {"a": {}}, "additionalProperties": {}}, {"a": 1}, 4),
        ({"uniqueItems": True}, [1, 2], 3),
        ({"uniqueItems": True}, ["a" * 510], 4),
        ({"type": "integer"}, "x" * 512, 3),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1}, 3),
        ({"prefixItems": [{}], "unevaluatedItems": False}, [1], 3),
    ],
)
def test_steps_are_counted(schema: dict[str, Any], value: Any, steps: int) -> None:
    def given_up(left: int) -> bool:
        return any(issue.keyword == "bound" for issue in CheckedSchema(schema).issues(value, Budget(left)))

    assert not given_up(steps)
    assert given_up(steps - 1)


def test_a_part_of_a_budget_is_taken_from_the_whole() -> None:
    whole = Budget(5)
    part = whole.part(3)
    part.spend()
    part.spend(2)
    assert (part.left, whole.left) == (0, 2)
    with pytest.raises(TooMuch):
        part.spend()
    other = whole.part()
    other.spend()
    with pytest.raises(TooMuch):
        other.spend()
    assert Budget().left == MAX_STEPS == 50_000


def test_a_message_is_short_whatever_it_quotes() -> None:
    [issue] = CheckedSchema({"type": "null"}).issues("x" * 5_000)
    assert len(issue.message) == MAX_MESSAGE_CHARS == 300


ONE_OF: dict[str, Any] = {
    "oneOf": [
        {"properties": {"a": {}}, "required": ["a"]},
        {"properties": {"b": {}}, "required": ["b"]},
    ]
}
BRANCHES: dict[str, Any] = {
    "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
    "then": {"properties": {"b": {}}},
    "else": {"properties": {"c": {}}},
}
DYNAMIC: dict[str, Any] = {
    "$dynamicRef": "#some",
    "$defs": {"d": {"$dynamicAnchor": "some", "properties": {"a": {}}}},
}
DEPENDENT: dict[str, Any] = {"dependentSchemas": {"a": {"allOf": [{"properties": {"a": {}, "b": {}}}]}}}
ITEMS_OF: dict[str, Any] = {"anyOf": [{"type": "array", "prefixItems": [{}]}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        ({"properties": {"a": {}}, "patternProperties": {"^b": {}}}, {"a": 1, "b": 1}, True),
        (DYNAMIC, {"a": 1}, True),
        (DYNAMIC, {"b": 1}, False),
        (ONE_OF, {"a": 1}, True),
        (ONE_OF, {"b": 1}, True),
        (BRANCHES, {"a": 1, "b": 2}, True),
        (BRANCHES, {"a": 1, "c": 2}, False),
        (BRANCHES, {"c": 1}, True),
        (BRANCHES, {"b": 1}, False),
        (DEPENDENT, {"a": 1, "b": 1}, True),
        (DEPENDENT, {"b": 1}, False),
        (ITEMS_OF, [1], True),
        (ITEMS_OF, [1, 2], False),
        ({"uniqueItems": True}, "aa", True),
        ({"uniqueItems": False, "items": {}}, [1, 1], True),
    ],
)
def test_what_one_keyword_has_evaluated(schema: dict[str, Any], value: Any, valid: bool) -> None:
    whole = {**schema, "unevaluatedProperties": False, "unevaluatedItems": False}
    assert (CheckedSchema(whole).issues(value) == []) is valid
