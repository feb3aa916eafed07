"""What a hostile reply or schema costs: each is given up within a bound."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sublet.policy.guardrail.check import check
from sublet.policy.guardrail.extract import MAX_REPLY_CHARS
from sublet.policy.guardrail.failure import Failed, FailureKind
from sublet.policy.guardrail.schema import MAX_PARTS, CheckedSchema
from sublet.protocol.canonical import JsonValue


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        # Each bracket begins a string that is read to the end before it turns out to be none.
        ("['a" * 512 + "b" * (MAX_REPLY_CHARS - 2_000) + "\\q", FailureKind.NO_JSON),
        ("['" * 512 + '"' * (MAX_REPLY_CHARS - 2_000) + "\\q", FailureKind.TOO_LARGE),
    ],
)
def test_a_reply_that_takes_long_to_read_is_given_up(reply: str, kind: FailureKind) -> None:
    found = check(reply, CheckedSchema({}))
    assert isinstance(found, Failed)
    assert found.kind is kind


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}] * 50}}},
        {
            "$ref": "#/$defs/d0",
            "$defs": {
                **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 60} for n in range(20)},
                "d20": {"type": "integer"},
            },
        },
    ],
)
def test_a_schema_whose_parts_multiply_is_looked_into_within_a_bound(schema: Mapping[str, JsonValue]) -> None:
    found = check('{"a": "x"}', CheckedSchema(schema))
    assert isinstance(found, Failed)
    assert found.kind is FailureKind.INVALID
    assert len(CheckedSchema(schema).applied(schema)) <= MAX_PARTS
