"""What an ACP agent has us do: files of the lease and commands in its sandbox, each asked for at the gate."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from acp.schema import ToolCallUpdate

from sublet.daemon.working.job_files import job_files
from sublet.supervisor.acp.provider import AcpProvider
from sublet.supervisor.acp.tool_calls import MAX_PATHS, TooLarge, tool_call
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.job import Outcome
from sublet.supervisor.launch import Sandbox
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, Unsandboxed
from support import acp_agent
from support.gates import ListGate
from support.jobs import Log, job

pytestmark = pytest.mark.anyio


async def run(
    tmp_path: Path,
    mode: str,
    gate: ListGate,
    *,
    access_mode: str = "rw",
    sandbox: Callable[[], Sandbox] = Unsandboxed,
    readable: tuple[str, ...] = (),
) -> tuple[Outcome, Log]:
    config = AgentConfig.model_validate(
        {
            "id": "test",
            "provider": {"type": "acp", "argv": [sys.executable, acp_agent.__file__, mode]},
            "sandbox": {"readable": list(readable)},
        }
    )
    log = Log()
    work = replace(job(tmp_path, "mend it", access_mode=access_mode), gate=gate)
    return await AcpProvider(config, sandbox(), files=job_files).run(work, log), log


async def test_files_of_the_lease_are_read_and_written(tmp_path: Path) -> None:
    gate = ListGate(["file.read", "file.write"])
    outcome, _ = await run(tmp_path, "fs", gate)
    assert json.loads(outcome.summary) == ["two\n", "text", "No such file or directory"]
    assert (tmp_path / "mount/workspace/made/by us").read_text() == "text"
    assert [(call.tool, call.paths) for call in gate.asked] == [
        ("file.write", ("workspace/made/by us",)),
        ("file.read", ("workspace/lines",)),
        ("file.read", ("workspace/made/by us",)),
        ("file.read", ("workspace/none",)),
    ]
    assert [error for _, error in gate.told] == [None, None, None, "No such file or directory"]


async def test_nothing_outside_of_the_lease_is_reached_whatever_the_gate_allows(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("untouched")
    gate = ListGate()
    outcome, log = await run(tmp_path, "fs-outside", gate)
    answers = json.loads(outcome.summary)
    assert len(answers) == 8
    assert all(isinstance(answer, str) for answer in answers), answers
    assert all(error is not None for _, error in gate.told)
    assert (tmp_path / "secret").read_text() == "untouched"
    assert "outside of the lent directories" in log.text("note")


async def test_what_the_gate_denies_is_neither_read_nor_written_nor_run(tmp_path: Path) -> None:
    gate = ListGate([])
    outcome, _ = await run(tmp_path, "terminal-line", gate)
    assert "not allowed: shell.exec is not in the list" in outcome.summary
    await run(tmp_path, "fs-outside", gate)
    assert gate.told == []


async def test_a_lease_for_reading_refuses_writes(tmp_path: Path) -> None:
    await run(tmp_path, "fs", gate := ListGate(), access_mode="ro")
    assert not (tmp_path / "mount/workspace/made").exists()
    assert [error is not None for _, error in gate.told[:1]] == [True]


async def test_a_command_has_its_arguments_variables_and_directory(tmp_path: Path) -> None:
    gate = ListGate(["shell.exec"])
    outcome, _ = await run(tmp_path, "terminal", gate)
    code, _, shown, truncated, gone = json.loads(outcome.summary)
    assert (code, truncated, gone) == (3, False, "Invalid params")
    assert shown == f"hi\n{tmp_path}/mount/workspace\n"
    [call] = gate.asked
    assert (call.arguments["command"], call.paths) == ("sh", ("workspace",))
    assert gate.told == [("shell.exec", "exit status 3")]


async def test_a_command_without_arguments_is_a_line_for_the_shell(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, "terminal-line", ListGate())
    assert json.loads(outcome.summary)[:3] == [0, None, "a=b"]


async def test_the_end_of_what_is_printed_is_kept(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, "terminal-flood", ListGate())
    _, _, shown, truncated, _ = json.loads(outcome.summary)
    assert truncated
    assert shown.endswith("9999\n10000\n")
    assert len(shown) <= 20


@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        ("terminal-outside", "it would begin outside of the lent directories"),
        ("terminal-name", "Invalid params"),
        ("terminal-many", "there are 16 terminals already; release some"),
        ("terminal-kill", "SIGKILL"),
    ],
)
async def test_bounds_of_terminals(tmp_path: Path, mode: str, answer: str) -> None:
    outcome, _ = await run(tmp_path, mode, ListGate())
    assert outcome.summary == answer


async def test_a_command_that_is_left_ends_with_the_conversation(tmp_path: Path) -> None:
    gate = ListGate()
    outcome, _ = await run(tmp_path, "terminal-left", gate)
    assert outcome.summary == "left running"
    assert gate.told == [("shell.exec", "it was ended")]


async def test_a_command_sees_what_the_sandbox_shows(tmp_path: Path) -> None:
    """The shell starts in the lease, and finds nothing of this machine beside it."""
    readable = (str(Path(acp_agent.__file__).parent), sys.prefix, sys.base_prefix)
    outcome, _ = await run(tmp_path, "terminal", ListGate(), sandbox=BubblewrapSandbox, readable=readable)
    assert json.loads(outcome.summary)[2] == f"hi\n{tmp_path}/mount/workspace\n", outcome


async def test_a_plan_is_told_where_it_changes(tmp_path: Path) -> None:
    _, log = await run(tmp_path, "plan", ListGate())
    assert log.text("note").splitlines() == ["plan: 0 of 1 done; now: mend it", "plan: 1 of 1 done"]


async def test_a_command_runs_in_the_directory_that_was_decided_on(tmp_path: Path) -> None:
    """A grant is for exactly this call: the same command elsewhere is another call, and a link leads nowhere else."""
    gate = ListGate(["shell.exec"])
    outcome, _ = await run(tmp_path, "terminal-places", gate)
    below = f"{tmp_path}/mount/workspace/below\n"
    assert json.loads(outcome.summary) == [below, below, f"{tmp_path}/mount/workspace\n"]
    told = [(call.arguments.get("cwd"), call.paths) for call in gate.asked]
    assert told == [("workspace/below", ("workspace/below",))] * 2 + [(None, ("workspace",))]


def asked_for(**more: object) -> ToolCallUpdate:
    return ToolCallUpdate.model_validate({"toolCallId": "c1", "title": "Edit", "kind": "edit", **more})


def test_what_a_call_touches_is_part_of_what_a_grant_is_for(tmp_path: Path) -> None:
    work = job(tmp_path, "mend it")
    one, other = (
        tool_call(asked_for(locations=[{"path": f"{work.workspace}/{name}"}]), work.resources) for name in "ab"
    )
    assert one.paths == ("workspace/a",)
    assert one.arguments != other.arguments
    named = asked_for(rawInput={"path": "a"}, locations=[{"path": f"{work.workspace}/a"}])
    assert tool_call(named, work.resources).arguments == {"path": "a"}


def test_a_call_that_touches_more_than_can_be_decided_on_is_refused(tmp_path: Path) -> None:
    work = job(tmp_path, "mend it")
    many = [{"path": f"{work.workspace}/{number}"} for number in range(MAX_PATHS + 1)]
    with pytest.raises(TooLarge):
        tool_call(asked_for(locations=many), work.resources)
