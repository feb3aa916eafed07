"""What attributes can be: at their bounds, of their type, and of which actions."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.policy.attributes import Attribute, attribute_of
from sublet.policy.decision import Action


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        (Attribute("number", minimum=1, maximum=3), 1, ""),
        (Attribute("number", minimum=1, maximum=3), 3, ""),
        (Attribute("number", minimum=1, maximum=3), 0, "it is a number, at least 1 and at most 3"),
        (Attribute("number", minimum=1, maximum=3), 4, "it is a number, at least 1 and at most 3"),
        (Attribute("number"), 0, ""),
        (Attribute("number"), -1, "it is a number, at least 0"),
        (Attribute("number"), True, "it is a number, at least 0"),
        (Attribute("number"), "1", "it is a number, at least 0"),
        (Attribute("number"), (1, 2), ""),
        (Attribute("flag"), True, ""),
        (Attribute("flag"), 1, "it is true or false"),
        (Attribute("name"), "a", ""),
        (Attribute("name"), ("a", 1), "it is a text"),
        (Attribute("path"), 1, "it is a text"),
        (Attribute("choice", frozenset({"ro", "rw"})), ("RO", "rw"), ""),
        (Attribute("choice", frozenset({"ro", "rw"})), ("ro", "x"), "it is one of ro, rw"),
        (Attribute("any"), ("a", 1), ""),
    ],
)
def test_which_values_an_attribute_has(attribute: Attribute, value: Any, said: str) -> None:
    assert attribute.defect_of(value) == said


def test_arguments_are_attributes_of_calls_alone() -> None:
    for action in Action:
        called = action in (Action.TOOL_CALL, Action.CAPABILITY_RUN, Action.OFFICE_CALL)
        assert (attribute_of(action, "args.x") == Attribute("any")) is called
        assert (attribute_of(action, "args.x") is None) is not called
        assert attribute_of(action, "args.") is None
    assert attribute_of(Action.ROOM_SEND, "size_bytes") == Attribute("number")
    assert attribute_of(Action.ROOM_SEND, "room") is None
    assert attribute_of(Action.POLICY_READ, "size_bytes") is None
