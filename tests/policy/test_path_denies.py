"""Which denies over paths hold against programs: of which agent, of which tools, in which run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sublet.policy.decision import Action, Subject
from sublet.policy.path_denies import path_denies
from sublet.policy.rules import Condition, Rule
from sublet.policy.times import Times

RULE = Rule(
    "r", "deny", "global", frozenset({"agent", "mcp"}), frozenset({Action.TOOL_CALL, Action.AGENT_ASK}),
    resource="file.*", when={"path": Condition(scopes=("secrets",))},
)  # fmt: skip
CODER = Subject("agent", "Coder", role="Writer")
KNOWN: dict[str, Any] = {"access_mode": "rw", "delegation_id": "dlg_1", "args.x": ("a", "b")}


def found(*changes: dict[str, Any], now: float = 0.0) -> tuple[bool, bool, bool]:
    """Return whether anything is kept from being read, from being written, and whether anything is kept at all."""
    denies = path_denies([replace(RULE, **change) for change in changes], CODER, KNOWN, now)
    return denies.unreadable("secrets/key"), denies.unwritable("secrets/key"), bool(denies)


BOTH, READ, WRITE, NEITHER = (True, True, True), (True, False, True), (False, True, True), (False, False, False)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, BOTH),
        ({"resource": "file.read"}, READ),
        ({"resource": "cat"}, READ),
        ({"resource": "file.write"}, WRITE),
        ({"resource": "file.edit"}, WRITE),
        ({"resource": "file.re\u0430d"}, READ),
        ({"resource": "file.delete"}, NEITHER),
        ({"resource": "*"}, BOTH),
        ({"spares": frozenset({"file.read"})}, WRITE),
        ({"spares": frozenset({"file.write"})}, BOTH),
        ({"spares": frozenset({"file.write", "file.edit"})}, READ),
        ({"effect": "approval"}, NEITHER),
        ({"effect": "allow"}, NEITHER),
        ({"actions": frozenset({Action.AGENT_ASK})}, NEITHER),
        ({"kinds": frozenset({"mcp"})}, NEITHER),
        ({"when": {}}, NEITHER),
        ({"name": "c\u043eder"}, BOTH),
        ({"name": "other"}, NEITHER),
        ({"when": {**RULE.when, "size_bytes": Condition(minimum=1)}}, NEITHER),
        ({"when": {**RULE.when, "args.x": Condition(minimum=1)}}, NEITHER),
        ({"when": {**RULE.when, "access_mode": Condition(values=("r\u0461",))}}, BOTH),
        ({"role": "wr*"}, BOTH),
        ({"role": "reviewer"}, NEITHER),
        ({"times": Times(start=0, end=60)}, BOTH),
        ({"times": Times(start=60, end=120)}, NEITHER),
        ({"when": {**RULE.when, "access_mode": Condition(values=("RW",))}}, BOTH),
        ({"when": {**RULE.when, "access_mode": Condition(values=("ro",))}}, NEITHER),
        ({"when": {"peer": Condition(values=("bob",)), **RULE.when}}, NEITHER),
        ({"when": {**RULE.when, "args.x": Condition(values=("a",))}}, NEITHER),
        (
            {"when": {"access_mode": Condition(values=("rw",)), **RULE.when, "delegation_id": Condition(glob="dlg_2")}},
            NEITHER,
        ),
    ],
)
def test_which_denies_hold_for_a_run(change: dict[str, Any], kept: tuple[bool, bool, bool]) -> None:
    assert found(change) == kept


def test_all_denies_hold_together() -> None:
    assert found({"resource": "file.read"}, {"resource": "file.write"}) == BOTH
    assert found({"times": Times(start=60, end=120)}, now=60 * 60.0) == BOTH
    assert found() == NEITHER


def test_what_lies_below_a_directory_may_be_denied() -> None:
    conditions = {"file.read": ("secrets/a",), "file.write": ("docs",)}
    rules = [
        replace(RULE, resource=tool, when={"path": Condition(scopes=scopes)}) for tool, scopes in conditions.items()
    ]
    denies = path_denies(rules, CODER, KNOWN, 0.0)
    below = {path: denies.below(path) for path in (".", "secrets", "secrets/b", "docs", "src", "doc")}
    assert below == {
        ".": True, "secrets": True, "secrets/b": False, "docs": True, "src": False, "doc": False,
    }  # fmt: skip
    assert [denies.unreadable(path) for path in ("secrets/a/x", "secrets/b", "docs", "a/..")] == [
        True,
        False,
        False,
        True,
    ]
    assert [denies.unwritable(path) for path in ("docs/x", "secrets/a", "a/..")] == [True, False, True]


def test_paths_are_compared_by_their_components() -> None:
    rules = [replace(RULE, when={"path": one}) for one in (Condition(values=("a/b",)), Condition(glob="c/*"))]
    denies = path_denies(rules, CODER, KNOWN, 0.0)
    asked = ("a//b", "a/b", "A/b", "c/x", "c/x/y")
    for denied in (denies.unreadable, denies.unwritable):
        assert [denied(path) for path in asked] == [True, True, False, True, False]
