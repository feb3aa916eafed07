"""The real Claude Code by the Agent Client Protocol, offline and sandboxed: what it asks is decided by the gate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sublet.supervisor.acp.provider import AcpProvider
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.capabilities.registry import read_capabilities
from sublet.supervisor.capabilities.runs import CapabilityRuns
from sublet.supervisor.capabilities.tool_source import CapabilityTools
from sublet.supervisor.job import Outcome
from sublet.supervisor.tools import ToolSource
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from support import claude_code
from support.gates import ListGate
from support.jobs import Log, job
from support.model_stub import Call, ModelStub, Say, Script

pytestmark = pytest.mark.anyio

AGENT = AgentConfig.model_validate({"id": "claude", "provider": {"type": "acp", "preset": "claude"}})
EARLIER = "Remember the colour blue."


async def run(
    base: Path,
    script: Script,
    gate: ListGate,
    *,
    prompt: str = "",
    earlier: str | None = None,
    source: ToolSource | None = None,
) -> tuple[Outcome, Log]:
    log = Log()
    work = replace(job(base, prompt or script.when), gate=gate, provider_session_id=earlier)
    with ModelStub([script]) as model:
        environ = {
            "PATH": f"{claude_code.acp_program().parent}:/usr/local/bin:/usr/bin:/bin",
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "dummy",
        }
        outcome = await AcpProvider(AGENT, BubblewrapSandbox(), environ, source=source).run(work, log)
    assert model.faults == []
    return outcome, log


def writing(path: Path) -> Script:
    return Script(
        [
            Call("Write", {"file_path": str(path), "content": "by Claude\n"}),
            Say(lambda results: "refused" if results[-1].is_error else "written"),
        ],
        when="Write the file.",
    )


async def test_what_the_gate_allows_is_done(tmp_path: Path) -> None:
    target = tmp_path / "mount/workspace/notes.md"
    gate = ListGate(["file.write"])
    outcome, log = await run(tmp_path, writing(target), gate)
    assert outcome.reason == "done", outcome
    assert outcome.summary == "written"
    assert target.read_text() == "by Claude\n"
    assert [(call.tool, call.paths) for call in gate.asked] == [("file.write", ("workspace/notes.md",))]
    assert gate.told == [("file.write", None)]
    assert "tool: " in log.text("note")


async def test_what_the_gate_denies_stays_undone(tmp_path: Path) -> None:
    target = tmp_path / "mount/workspace/notes.md"
    outcome, _ = await run(tmp_path, writing(target), ListGate([]))
    assert outcome.reason in ("done", "cancelled"), outcome
    assert not target.exists()


async def test_a_write_outside_the_lease_fails_even_where_the_gate_allows_it(tmp_path: Path) -> None:
    target = Path("/srv/elsewhere.txt")
    gate = ListGate(["file.write"])
    outcome, _ = await run(tmp_path, writing(target), gate)
    assert [call.paths for call in gate.asked] == [(str(target),)]
    assert outcome.summary == "refused"
    assert not target.exists()


async def test_what_the_directory_configures_does_not_act(tmp_path: Path) -> None:
    settings = tmp_path / "mount/workspace/.claude/settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '{"permissions": {"allow": ["Write"]}, "hooks": {"SessionStart": [{"hooks": '
        '[{"type": "command", "command": "touch ran"}]}]}}'
    )
    target = tmp_path / "mount/workspace/notes.md"
    await run(tmp_path, writing(target), ListGate([]))
    assert not target.exists()
    assert not (tmp_path / "mount/workspace/ran").exists()


async def test_a_session_is_gone_on_with(tmp_path: Path) -> None:
    """The script is only played to a conversation that holds the first prompt, so the second one went on with it."""
    script = Script([Say("blue")], when=EARLIER)
    first, _ = await run(tmp_path, script, ListGate([]))
    second, _ = await run(tmp_path, script, ListGate([]), prompt="Which colour?", earlier=first.provider_session_id)
    assert first.provider_session_id is not None
    assert second.provider_session_id == first.provider_session_id
    assert second.summary == "blue"


@pytest.mark.parametrize("allowed", [True, False])
async def test_it_uses_a_capability_as_far_as_the_gate_allows(tmp_path: Path, allowed: bool) -> None:
    module = {"id": "touch", "name": "t", "version": "1", "description": "makes a file", "command": "touch"}
    (tmp_path / "capabilities/touch").mkdir(parents=True)
    (tmp_path / "capabilities/touch/module.json").write_text(json.dumps(module))
    found = read_capabilities([tmp_path / "capabilities"])
    runs = CapabilityRuns(BubblewrapSandbox(), tmp_path / "runs")
    source = CapabilityTools(lambda: found, runs, chosen=lambda _: None, may=lambda _agent, _tool: True)
    gate = ListGate(["capability.touch"] if allowed else [])
    script = Script(
        [
            # It looks up the tools of servers before it uses them.
            Call("ToolSearch", {"query": "select:mcp__sublet__capability_touch", "max_results": 1}),
            Call("mcp__sublet__capability_touch", {"args": ["made.txt"]}),
            Say(lambda results: "refused" if results[-1].is_error else "made"),
        ],
        when="Make the file.",
    )
    outcome, _ = await run(tmp_path, script, gate, source=source)
    assert outcome.summary == ("made" if allowed else "refused")
    assert (tmp_path / "mount/workspace/made.txt").exists() == allowed
    assert [call.tool for call in gate.asked] == ["capability.touch"]
