"""Every tool that an agent has here asks before it acts: each is run, and nothing happens where the answer is no."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.protocol.canonical import JsonValue
from sublet.supervisor.chat.calls import Calls
from sublet.supervisor.chat.file_tools import FileTools
from sublet.supervisor.chat.reply import RawCall
from sublet.supervisor.chat.shell_tool import shell_tool
from sublet.supervisor.chat.tool import Tool
from sublet.supervisor.confined_runs import ConfinedRuns
from sublet.workspace.lease_files import MountedFiles
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from support.approvals import Desk, desk
from support.jobs import command, job

pytestmark = pytest.mark.anyio

NAMES = ["file_delete", "file_edit", "file_list", "file_move", "file_read", "file_search", "file_write", "shell_exec"]
ARGUMENTS: dict[str, dict[str, JsonValue]] = {
    "file_read": {"path": "a"},
    "file_list": {},
    "file_search": {"text": "secret"},
    "file_write": {"path": "new", "content": "x"},
    "file_edit": {"path": "a", "old": "secret", "new": "x"},
    "file_move": {"path": "a", "to": "b"},
    "file_delete": {"path": "a"},
    "shell_exec": {"command": "rm a; echo secret"},
}
ALIASES = {
    "file_delete": "rm",
    "shell_exec": "Bash",
    "file_write": "Write",
    "file_read": "cat",
    "file_edit": "MultiEdit",
}


async def run(root: Path, side: Desk, name: str) -> tuple[str, dict[str, str], set[str]]:
    """Have the tool called; return what the model is told, what the lent directory holds, and the tools there are."""
    work = job(root, "Go.")
    for path in work.workspace.iterdir():
        path.unlink()
    (work.workspace / "a").write_text("secret")
    files = MountedFiles({"workspace": (work.workspace, "rw")})
    gate = side.gate()
    runs = ConfinedRuns(command(), work, BubblewrapSandbox(), {"PATH": "/usr/bin:/bin"})
    offered: list[Tool] = [*FileTools(work, files, gate).tools(), shell_tool(runs)]
    try:
        told = await Calls(offered, gate, lambda _: None).make(RawCall("c1", name, json.dumps(ARGUMENTS[name])))
    finally:
        await files.aclose()
        await runs.close()
    left = {path.name: path.read_text() for path in work.workspace.iterdir()}
    return told, left, {tool.wire_name for tool in offered}


def rule(resource: str) -> dict[str, Any]:
    return {"id": "never", "effect": "deny", "action": "tool.call", "resource": resource}


async def test_these_are_all_tools_that_there_are(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        assert (await run(tmp_path, side, "file_read"))[2] == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
async def test_every_tool_asks_and_does_nothing_where_the_answer_is_no(tmp_path: Path, name: str) -> None:
    async with desk(tmp_path, [rule("*")]) as side:
        told, left, _ = await run(tmp_path, side, name)
        assert "Refused by policy" in told
        assert "secret" not in told
        assert left == {"a": "secret"}
        [event] = (await side.journal.events.events_after(0)).events
        assert (str(event.kind), event.data["rule"], event.data["code"]) == (
            "policy_rejected",
            "never",
            "POLICY_DENIED",
        )
        [(_, entry)] = side.audit.entries
        assert (entry["decision"], entry["rule"], entry["resource"]) == ("deny", "never", name.replace("_", "."))


@pytest.mark.parametrize("name", sorted(ALIASES))
async def test_a_tool_that_is_denied_by_an_alias_does_nothing(tmp_path: Path, name: str) -> None:
    async with desk(tmp_path, [rule(ALIASES[name])]) as side:
        told, left, _ = await run(tmp_path, side, name)
        assert "Refused by policy" in told
        assert left == {"a": "secret"}
        assert [str(one.kind) for one in (await side.journal.events.events_after(0)).events] == ["policy_rejected"]


@pytest.mark.parametrize("name", NAMES)
async def test_every_tool_acts_where_the_answer_is_yes(tmp_path: Path, name: str) -> None:
    """Else the tests above would pass with tools that do nothing."""
    async with desk(tmp_path) as side:
        told, left, _ = await run(tmp_path, side, name)
        assert not told.startswith(("Error", "Refused")), told
        assert "secret" in told or left != {"a": "secret"} or name == "file_list"
        assert str((await side.journal.events.events_after(0)).events[0].kind) == "tool_call"
