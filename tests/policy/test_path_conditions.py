"""Conditions on paths: as they are loaded, and which can never hold."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from sublet.policy.decision import Action
from sublet.policy.path_conditions import path_faults, settled_condition
from sublet.policy.rules import Condition

TOOL, LEND = (Action.TOOL_CALL,), (Action.WORKSPACE_LEND,)


def test_a_condition_is_loaded_with_its_home_and_its_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    home, real = str(tmp_path), os.path.realpath(tmp_path / "real")
    made = Condition(values=("~/a", "~/link", 7, "~/a"), scopes=("~/link",), glob="~/link/*", minimum=1, maximum=2)
    assert settled_condition(made) == Condition(
        values=(f"{home}/a", f"{home}/link", real, 7),
        scopes=(f"{home}/link", real),
        glob=f"{real}/*",
        minimum=1,
        maximum=2,
    )
    assert settled_condition(Condition(minimum=1)) == Condition(minimum=1)


@pytest.mark.parametrize(
    ("condition", "actions", "fault"),
    [
        (Condition(values=("src/a.py",)), TOOL, ""),
        (Condition(values=(".",)), TOOL, ""),
        (Condition(values=(5, True)), TOOL, ""),
        (Condition(values=("/src",)), TOOL, "relative to the lent directory"),
        (Condition(values=("~",)), TOOL, "relative to the lent directory"),
        (Condition(values=("~/a",)), TOOL, "relative to the lent directory"),
        (Condition(values=("~a",)), TOOL, ""),
        (Condition(values=("a/../b",)), TOOL, "is no path"),
        (Condition(values=("",)), TOOL, "is no path"),
        (Condition(values=("a*",)), TOOL, "is no path"),
        (Condition(values=(" a",)), TOOL, "is no path"),
        (Condition(values=("a ",)), TOOL, "is no path"),
        (Condition(values=("a b",)), TOOL, ""),
        (Condition(values=("a\x1f",)), TOOL, "is no path"),
        (Condition(values=("a\x7fb",)), TOOL, "is no path"),
        (Condition(values=("a\x80b",)), TOOL, ""),
        (Condition(scopes=("src", "a*")), TOOL, "'a*' is no path"),
        (Condition(scopes=("/src",)), TOOL, "relative to the lent directory"),
        (Condition(glob="src/*"), TOOL, ""),
        (Condition(glob="/src/*"), TOOL, "never holds: a path of a tool is relative"),
        (Condition(glob="src/["), TOOL, "never holds: its '[' is not closed"),
        (Condition(glob="src//a"), TOOL, "never holds: a path has no empty component"),
        (Condition(values=("/srv/a",)), LEND, ""),
        (Condition(values=("srv/a",)), LEND, "a path of lending is absolute"),
        (Condition(glob="srv/*"), LEND, "a path of lending is absolute"),
        (Condition(glob="/srv/*"), LEND, ""),
        (Condition(values=("a",)), (*TOOL, *LEND), "paths of tool.call are relative"),
        (Condition(values=("a",)), (*TOOL, *LEND), "those of workspace.lend are absolute"),
        (Condition(values=("/a",)), (*LEND, Action.WORKSPACE_REVEAL), ""),
    ],
)
def test_why_a_path_never_matches(condition: Condition, actions: Collection[Action], fault: str) -> None:
    found = list(path_faults(condition, actions))
    assert bool(found) == bool(fault)
    assert len(found) <= 1
    assert not fault or fault in found[0]
