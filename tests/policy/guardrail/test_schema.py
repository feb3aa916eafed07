"""Schemas are checked themselves, are complete in themselves, and can't hang."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sublet.policy.guardrail.failure import MAX_ISSUES, Issue
from sublet.policy.guardrail.keywords import Budget
from sublet.policy.guardrail.patterns import BadPattern, LinearPattern
from sublet.policy.guardrail.schema import MAX_PARTS, CheckedSchema
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "int"}, "/type"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "only https://json-schema.org/draft/2020-12"),
        ({"$ref": "https://example.org/s.json"}, "refers beyond the schema"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "/properties/a/$ref"),
        ({"$dynamicRef": "https://example.org/#meta"}, "refers beyond"),
        ({"$ref": "#/$defs/absent"}, "is not there"),
        ({"$ref": "#/title", "title": "text"}, "is no schema"),
        ({"properties": {"a": {"$id": "urn:b"}}}, "only the whole schema has an $id"),
        ({"pattern": "(?=x)"}, "look-around"),
        ({"pattern": "(a)\\1"}, "can't be used"),
        ({"pattern": "("}, "can't be used"),
        ({"patternProperties": {"(?<!x)y": {}}}, "look-around"),
        ({"pattern": "(a{100}){100}"}, "multiply"),
        ({"pattern": "a" * 501}, "at most 500"),
        ({"description": "x" * 70_000}, "bytes"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"anyOf": [{"pattern": f"a{i}"} for i in range(40)]}, "more than 32 patterns"),
    ],
)
def test_a_schema_that_cannot_be_relied_on_is_refused(schema: dict[str, JsonValue], words: str) -> None:
    with pytest.raises(SubletError) as refused:
        CheckedSchema(schema)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert words in refused.value.message


def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: dict[str, JsonValue] = {}
    for _ in range(40):
        schema = {"items": schema}
    with pytest.raises(SubletError, match="nested deeper"):
        CheckedSchema(schema)


def test_data_and_names_that_look_like_references_are_none() -> None:
    schema = CheckedSchema({"properties": {"$ref": {"const": {"$ref": "https://example.org"}}}, "x": {"pattern": 5}})
    assert schema.issues({"$ref": {"$ref": "https://example.org"}}) == []


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        # what the only other implementation lets pass
        ({"type": "integer"}, 3, 3.5),
        ({"minimum": 3}, 3, 2),
        ({"exclusiveMaximum": 3}, 2, 3),
        ({"multipleOf": 0.5}, 1.5, 1.3),
        ({"pattern": "^[a-z]+$"}, "abc", "abc1"),
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, 7, 4),
        ({"oneOf": [{"minimum": 5}, {"maximum": 9}]}, 1, 7),
        ({"allOf": [{"minimum": 5}, {"maximum": 9}]}, 7, 10),
        ({"not": {"type": "null"}}, 1, None),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "x", 1),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        ({"minLength": 2, "maxLength": 3}, "äö", "ä"),
        ({"minItems": 1, "uniqueItems": True}, [1, 2], [{"a": [1]}, {"a": [1]}]),
        ({"contains": {"const": 1}, "maxContains": 1}, [1, 2], [1, 1]),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
        ({"propertyNames": {"pattern": "^a"}}, {"ab": 1}, {"b": 1}),
        ({"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False}, {"a1": "x"}, {"b": "x"}),
        (
            {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": {"type": "null"}},
            {"b": None},
            {"b": 1},
        ),
        ({"dependentRequired": {"a": ["b"]}}, {"b": 1}, {"a": 1}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 1}, {"a": 1}),
        (
            {"allOf": [{"properties": {"a": {}}}, {"patternProperties": {"^x": {}}}], "unevaluatedProperties": False},
            {"a": 1, "x1": 1},
            {"b": 1},
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {}}}}, "unevaluatedProperties": False},
            {"a": 1},
            {"b": 1},
        ),
        (
            {
                "if": {"properties": {"k": {"const": 1}}},
                "else": {"properties": {"l": {}}},
                "unevaluatedProperties": False,
            },
            {"k": 1},
            {"k": 1, "l": 1},
        ),
        (
            {
                "properties": {"a": {}},
                "dependentSchemas": {"a": {"properties": {"b": {}}}},
                "unevaluatedProperties": False,
            },
            {"a": 1, "b": 1},
            {"b": 1},
        ),
        ({"prefixItems": [{}], "contains": {"type": "string"}, "unevaluatedItems": False}, [1, "a"], [1, "a", 2]),
        ({"allOf": [{"prefixItems": [{}, {}]}], "unevaluatedItems": {"type": "null"}}, [1, 2, None], [1, 2, 3]),
        (
            {
                "$dynamicAnchor": "node",
                "type": "object",
                "properties": {"child": {"$dynamicRef": "#node"}},
                "unevaluatedProperties": False,
            },
            {"child": {"child": {}}},
            {"child": {"other": 1}},
        ),
    ],
)
def test_keywords_of_draft_2020_12(schema: dict[str, JsonValue], good: JsonValue, bad: JsonValue) -> None:
    checked = CheckedSchema(schema)
    assert checked.issues(good) == []
    assert checked.issues(bad)


def test_items_that_another_schema_has_evaluated_are_evaluated() -> None:
    assert CheckedSchema({"allOf": [{"items": {}}], "unevaluatedItems": False}).issues([1, 2]) == []


def test_issues_tell_where_and_are_bounded() -> None:
    checked = CheckedSchema({"items": {"type": "string"}, "properties": {"a/b": {"type": "null"}}})
    found = checked.issues(list(range(100)))
    assert len(found) == MAX_ISSUES
    assert found[0].path == "/0"
    assert checked.issues({"a/b": "x" * 100_000})[0].path == "/a~1b"
    assert len(checked.issues({"a/b": "x" * 100_000})[0].message) <= 300


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 50 + "!"),
        ({"pattern": "(x+x+)+y"}, "x" * 100_000),
        ({"patternProperties": {"^(a|a)*$": {}}, "additionalProperties": False}, {"a" * 50 + "!": 1}),
        ({"patternProperties": {"^(a|a)*$": {}}, "unevaluatedProperties": False}, {"a" * 50 + "!": 1}),
        ({"uniqueItems": True}, [[i] for i in range(20_000)] + [[1]]),
        ({"$ref": "#"}, 1),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, 1),
        (
            {
                "$defs": {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(25)}
                | {"d25": {"type": "null"}},
                "$ref": "#/$defs/d0",
            },
            None,
        ),
        (
            {
                "$defs": {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(25)} | {"d25": {}},
                "$ref": "#/$defs/d0",
                "unevaluatedProperties": False,
            },
            {"a": 1},
        ),
        ({"anyOf": [{"type": "null"}] * 2000}, ["x" * 50] * 4000),
    ],
)
def test_no_schema_hangs(schema: dict[str, JsonValue], value: JsonValue) -> None:
    assert CheckedSchema(schema).issues(value)


def test_patterns_are_those_of_ecma_262() -> None:
    assert LinearPattern(r"^\d+$").matches("12")
    assert not LinearPattern(r"^\d+$").matches("١٢")
    assert not LinearPattern(r"^a$").matches("a\n")
    assert LinearPattern(r"^[\w[&&]+$").matches("a[&_")
    assert LinearPattern(r"^[^\W]$").matches("a")
    assert LinearPattern(r"^\W\/$").matches("ä/")
    with pytest.raises(BadPattern):
        LinearPattern("[")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"a": {"$ref": "b#"}}}, "/properties/a/$ref: refers beyond the schema, to 'b#'"),
        ({"allOf": [{}, {"pattern": "("}]}, "/allOf/1: the pattern '(' can't be used: "),
        ({"pattern": "("}, "the schema: the pattern '(' can't be used: "),
        ({"items": {"not": {"$ref": "#/x"}}}, "/items/not/$ref: '#/x' is not there"),
        ({"default": 1, "items": {"$ref": "b"}}, "/items/$ref: refers beyond the schema, to 'b'"),
        ({"type": 1}, "/type: "),
        ({"anyOf": [{"pattern": f"a{i}"} for i in range(33)]}, "there are more than 32 patterns"),
        ({"x": "y" * (64 * 1024 - 8)}, "it has 65537 bytes, and at most 65536 are taken"),
    ],
)
def test_a_refused_schema_is_told_with_the_place(schema: dict[str, JsonValue], said: str) -> None:
    with pytest.raises(SubletError) as refused:
        CheckedSchema(schema)
    assert refused.value.message.startswith(f"the JSON Schema can't be used: {said}")


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://json-schema.org/draft/2020-12/schema#"},
        {"$id": "urn:x", "$ref": "#/$defs/a", "$defs": {"a": {}}},
        {"pattern": "^\\p{L}$"},
        {"anyOf": [{"pattern": f"a{i}"} for i in range(32)]},
        {"x": "y" * (64 * 1024 - 9)},
    ],
    ids=range(5),
)
def test_a_schema_at_its_bounds_is_taken(schema: dict[str, JsonValue]) -> None:
    assert CheckedSchema(schema).issues("é") == [] or "anyOf" in schema


def test_a_check_that_is_given_up_says_so() -> None:
    def bound(words: str) -> list[Issue]:
        return [Issue("", words, "bound")]

    steps = "the check takes too many steps, so that it was given up"
    assert CheckedSchema({"type": "integer"}).issues(1, Budget(0)) == bound(steps)
    assert CheckedSchema({"$ref": "#"}).issues(1) == bound("the schema refers to itself without an end")
    assert CheckedSchema({"multipleOf": 0.5}).issues(10**400) == bound("a number is too large to be compared")


def test_how_far_a_schema_is_followed() -> None:
    def chain(link: Callable[[int], dict[str, JsonValue]]) -> int:
        defs: dict[str, JsonValue] = {**{f"d{n}": link(n + 1) for n in range(12)}, "d12": {}}
        return len(CheckedSchema({"$defs": defs}).applied({"$ref": "#/$defs/d0"}))

    assert chain(lambda n: {"$ref": f"#/$defs/d{n}"}) == 9
    assert chain(lambda n: {"allOf": [{"$ref": f"#/$defs/d{n}"}]}) == 9
    assert CheckedSchema({}).applied(True) == []
    many = CheckedSchema({"allOf": [{"title": str(n)} for n in range(100)]})
    assert len(many.applied(many.document)) == MAX_PARTS
    circular = CheckedSchema({"$ref": "#"})
    assert len(circular.applied(circular.document)) == 2


def test_an_issue_has_a_short_place_with_its_names_escaped() -> None:
    schema = CheckedSchema({"additionalProperties": {"additionalProperties": {"type": "null"}}})
    [issue] = schema.issues({"~a/b~": {"n" * 300: 1}})
    assert issue.path == f"/~0a~1b~0/{'n' * 150}… [150 more characters cut]"


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        ("a" * 500, "a" * 500, True),
        ("a{1000}", "a" * 1_000, True),
        ("(a{2}){500}", "a" * 999, False),
        ("(a{0}){1000}", "", True),
        ("(a{0,}){1000}", "", True),
        ("[X]", "X", True),
        ("[a][b]", "ab", True),
        ("[a]b]", "ab]", True),
        ("[\\d]", "7", True),
        ("[\\D]", "7", False),
        ("[a\\w~]", "~", True),
    ],
    ids=range(11),
)
def test_patterns_at_their_bounds(source: str, text: str, found: bool) -> None:
    assert LinearPattern(source).matches(text) is found


@pytest.mark.parametrize("source", ["a" * 501, "a{1001}", "(a{2,3}){334}", "a\\"], ids=range(4))
def test_patterns_beyond_their_bounds(source: str) -> None:
    with pytest.raises(BadPattern):
        LinearPattern(source)
