"""What other agents' own programs have said by the Agent Client Protocol, played again: how their work is told.

The conversations were recorded with the real programs, offline, whose model was told to read, run, write, edit and
search (``tests/supervisor/recorded``). ``tests/e2e/test_other_acp_agents.py`` runs the programs where they are.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from sublet.daemon.working.job_files import job_files
from sublet.supervisor.acp import presets, provider
from sublet.supervisor.acp.presets import AcpPlan
from sublet.supervisor.acp.provider import AcpProvider
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.job import Outcome
from sublet.workspace.sandbox.bubblewrap import Unsandboxed
from support import recorded_acp
from support.gates import ListGate
from support.jobs import Log, job

pytestmark = pytest.mark.anyio

RECORDED = Path(__file__).parents[1] / "recorded"
VERSIONS = {"opencode": "1.18.33", "gemini": "0.61.0", "codex": "0.16.0"}
KEYS = {
    "opencode": {"OPENCODE_CONFIG_CONTENT": "{}"},
    "gemini": {"GEMINI_API_KEY": "dummy"},
    "codex": {"OPENAI_API_KEY": "dummy"},
}


async def played(
    tmp_path: Path, preset: str, how: str, allowed: Collection[str] | None = None
) -> tuple[Outcome, Log, ListGate]:
    """Play a recorded conversation of a preset."""
    log = RECORDED / f"{preset}-{VERSIONS[preset]}-{how}.log"

    def plan(config: AgentConfig, environ: Mapping[str, str]) -> AcpPlan:
        made = presets.acp_plan(config, environ)
        argv = (sys.executable, recorded_acp.__file__, str(log))
        return replace(made, program=replace(made.program, argv=argv))

    told, gate = Log(), ListGate(allowed)
    config = AgentConfig.model_validate({"id": preset, "provider": {"type": "acp", "preset": preset}})
    work = replace(job(tmp_path, "Make it work, then test it."), gate=gate)
    (tmp_path / "mount/workspace/notes.md").write_text("hello\n")
    with patch.object(provider, "acp_plan", plan):
        agent = AcpProvider(config, Unsandboxed(), KEYS[preset], files=job_files)
        return await agent.run(work, told), told, gate


TOLD = {
    "opencode": [
        "tool: read notes.md",
        "tool: Run make test",
        "tool: write new.md",
        "tool: edit notes.md",
        "tool: grep .",
        "failed: grep .",
        "tool: 1 todos",
        "tool: Run exit 3",
    ],
    "gemini": [
        "tool: Read notes.md",
        "tool: Run make test",
        "tool: Edit new.md",
        "tool: Edit notes.md",
        "tool: Search 'by' within ./",
        "tool: Run exit 3",
    ],
    "codex": [
        "tool: Read notes.md",
        "tool: Run make test",
        "plan: 1 of 2 done; now: Test",
        "tool: Edit new.md",
        "tool: Search hello in .",
        "failed: Search hello in .",
        "tool: Run exit 3",
        "failed: Run exit 3",
    ],
}


@pytest.mark.parametrize("preset", TOLD)
async def test_progress_reads_like_work(tmp_path: Path, preset: str) -> None:
    outcome, told, _ = await played(tmp_path, preset, "allowed")
    assert (outcome.reason, outcome.summary.split("\n")[-1]) == ("done", "It works now."), outcome
    assert told.text("note").splitlines() == TOLD[preset]
    assert told.text("stderr") == ""
    assert not told.text().startswith("\n")


ASKED = {
    "opencode": ["shell.exec", "file.write", "file.write", "file.write", "file.write", "shell.exec"],
    "gemini": ["shell.exec", "file.write", "file.write", "shell.exec"],
    "codex": ["shell.exec", "file.write", "shell.exec"],
}


@pytest.mark.parametrize("preset", ASKED)
async def test_what_a_program_asks_for_is_decided_by_what_it_does(tmp_path: Path, preset: str) -> None:
    _, _, gate = await played(tmp_path, preset, "allowed")
    assert [call.tool for call in gate.asked] == ASKED[preset]
    wrote = {path for call in gate.asked if call.tool == "file.write" for path in call.paths}
    assert wrote <= {"workspace/new.md", "workspace/notes.md"}


ENDED = {
    "opencode": ("done", ""),
    "gemini": ("done", ""),
    "codex": ("failed", "it ended when a call was refused"),
}


@pytest.mark.parametrize("preset", TOLD)
async def test_what_is_refused_is_told_and_the_work_goes_on(tmp_path: Path, preset: str) -> None:
    outcome, told, gate = await played(tmp_path, preset, "denied", [])
    # Codex ends with the first call that is refused, and calls that cancelled.
    assert (outcome.reason, outcome.detail) == ENDED[preset], outcome
    refused = [line for line in told.text("note").splitlines() if line.startswith("refused: ")]
    assert len(refused) == len(gate.asked) > 0
    assert not (tmp_path / "mount/workspace/new.md").exists()
    assert str(tmp_path) not in told.text("note")
