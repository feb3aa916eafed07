"""A tool call as rules see it: arguments by their names, and what can't be compared left out."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.policy.tool_calls import MAX_ARGUMENT_ATTRIBUTES, MAX_ARGUMENT_DEPTH, tool_resource


@pytest.mark.parametrize(
    ("arguments", "attributes", "size"),
    [
        ({}, {}, 0),
        ({"a": "x"}, {"args.a": "x"}, 2),
        ({"a": 1, "b": True, "c": "\u00e9"}, {"args.a": 1, "args.b": True, "args.c": "\u00e9"}, 3 + 8 + 8 + 2),
        ({"a": ["x", "yz"]}, {"args.a": ("x", "yz")}, 4),
        ({"a": None, "b": [], "c": [1], "d": ["x", 1], "e": 1.5}, {}, 5 + 8 + 0 + 8 + 9 + 8),
        ({"a": {"b": {"c": "x"}, "d": 2}}, {"args.a.b.c": "x", "args.a.d": 2}, 1 + 1 + 1 + 1 + 1 + 8),
        ({"a.b": "x", "a": {"b": "y"}}, {}, 3 + 1 + 1 + 2),
        ({"a": {"b": "y"}, "a.b": None}, {}, 1 + 2 + 3 + 8),
        ({"args": [1]}, {"unclear": True}, 4 + 8),
        ({"args": ["x"]}, {"args.args": ("x",)}, 4 + 1),
        ({"args": []}, {}, 4),
        ({"args": None}, {}, 4 + 8),
        ({"argv": [["x"]]}, {"unclear": True}, 4 + 1),
        ({"env": {"PATH": "x"}}, {"args.env.PATH": "x"}, 3 + 4 + 1),
        ({"environment": 1.5}, {"unclear": True}, 11 + 8),
        ({"variables": [1]}, {"unclear": True}, 9 + 8),
        ({"arguments": [None]}, {"unclear": True}, 9 + 8),
        ({"\ud800": "\udfff"}, {"args.\ud800": "\udfff"}, 2),
    ],
)
def test_arguments_become_attributes(arguments: dict[str, Any], attributes: dict[str, Any], size: int) -> None:
    found = tool_resource("x", arguments)
    assert dict(found.attributes) == {**attributes, "size_bytes": size}
    assert found.name == "x"


def test_what_is_known_of_the_call_stands_beside_its_arguments() -> None:
    found = tool_resource(
        "x", {"path": "y"}, ["a", "b"], access_mode="ro", delegation_id="dlg_1", peer="bob", room="r", sifted=True
    )
    assert found.attributes == {
        "args.path": "y", "path": ("a", "b"), "access_mode": "ro", "delegation_id": "dlg_1", "peer": "bob", "room": "r",
        "sifted": True, "size_bytes": 5,
    }  # fmt: skip


def test_attributes_are_bounded_in_number_and_depth() -> None:
    many = tool_resource("x", {f"a{number}": 1 for number in range(300)}).attributes
    assert len([name for name in many if name.startswith("args.")]) == MAX_ARGUMENT_ATTRIBUTES == 256
    deep: Any = "x"
    for _ in range(9):
        deep = {"a": deep}
    assert MAX_ARGUMENT_DEPTH == 8
    assert tool_resource("x", deep).attributes["args." + ".".join("a" * 9)] == "x"
    assert list(tool_resource("x", {"a": deep}).attributes) == ["size_bytes"]
