"""Rules as people read them: nothing of a rule is cut, in whatever width."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from sublet.cli.app import run
from sublet.cli.rendering.policy import policy_parts
from sublet.daemon.governing.explain import shown
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected

RULE = {
    "id": "reviewers-read",
    "effect": "allow",
    "action": "tool.call",
    "resource": "file.read",
    "when": {"path": {"within": ["src", "docs"]}},
}


@pytest.mark.parametrize("width", [40, 10_000])
def test_a_rule_tells_who_what_to_what_and_when(tmp_path: Path, width: int) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"version": 1, "role": {"reviewer": [RULE]}, "limits": {"slots": 3}}))
    view = shown(Policy.load(file, Protected(tmp_path, ())))
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    for part in policy_parts(view):
        console.print(part)
    words = " ".join(out.getvalue().split())

    assert "role layer allow agent as reviewer: tool.call to file.read" in words
    assert "when path within src or docs reviewers-read, policy.json" in words
    assert "delegation.{apply, cancel, create, discard, extend, read, review, say, undo}, workspace.lend" in words
    assert "when declared is true" in words
    assert "slots 3" in words


def test_rules_that_are_in_no_file_are_not_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, bad = tmp_path / "none.json", tmp_path / "policy.json"
    [*_, last] = policy_parts(shown(Policy.load(missing, Protected(tmp_path, ()))))
    assert str(last) == f"No {missing}. What nothing allows is denied."
    bad.write_text('{"version": 1, "globl": []}')
    assert run(["policy", "lint", str(bad)]) == 1
    assert capsys.readouterr().out == f"{bad}: globl: there is no such field, did you mean 'global'?\n"
