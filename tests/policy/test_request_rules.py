"""What a request may narrow, how it is read from elsewhere, and which rules it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.policy.decision import Action
from sublet.policy.request_rules import NOT_NARROWED, Narrowing, narrowing, told_narrowing
from sublet.policy.rules import KINDS, Rule
from sublet.protocol.errors import LocalCode, SubletError


def rule(place: str, name: str) -> Rule:
    deny = place == "deny"
    return Rule(
        f"request.{place}.{name}", "deny" if deny else "allow", "request", frozenset(KINDS),
        frozenset({Action.TOOL_CALL}), resource=name, reason=f"the request says so: deny {name}" if deny else "",
    )  # fmt: skip


def test_names_become_rules_and_a_family_means_all_of_it() -> None:
    made = Narrowing(("file.write", "Network"), ("file", "mcp.*"))
    assert list(made.rules) == [
        rule("deny", "file.write"), rule("deny", "Network"), rule("deny", "Network.*"),
        rule("only", "file"), rule("only", "file.*"), rule("only", "mcp.*"),
    ]  # fmt: skip
    assert made.data() == {"deny": ["file.write", "Network"], "only": ["file", "mcp.*"]}
    assert (NOT_NARROWED.rules, NOT_NARROWED.data()) == ((), {"deny": [], "only": []})
    assert [bool(one) for one in (NOT_NARROWED, Narrowing(deny=("a",)), Narrowing(only=("a",)))] == [False, True, True]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (["file.write"], Narrowing(("file.write",))),
        ([], NOT_NARROWED),
        ({}, NOT_NARROWED),
        ({"deny": ["network"], "only": ["file.*"]}, Narrowing(("network",), ("file.*",))),
        ({"only": ["x"] * 32}, Narrowing((), ("x",) * 32)),
        ({"deny": ["x" * 200]}, Narrowing(("x" * 200,))),
        ({"only": ["x"] * 33}, None),
        ({"deny": ["x"] * 33}, None),
        ({"deny": ["x" * 201]}, None),
        ({"deny": ["file.craete"]}, None),
        ({"only": [""]}, None),
        ({"deny": "network"}, None),
        ({"deny": [1]}, None),
        ({"only": None}, None),
        ({"deny": ["network"], "allow": []}, None),
        ("network", None),
        (None, None),
        (7, None),
    ],
)
def test_what_somebody_elses_json_narrows(value: Any, found: Narrowing | None) -> None:
    if found is not None:
        assert told_narrowing(value) == found
        return
    with pytest.raises(SubletError) as refused:
        told_narrowing(value)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


def test_a_family_is_known_however_it_is_written() -> None:
    assert narrowing(["FILE", "Mcp"], []) == Narrowing(("FILE", "Mcp"))
