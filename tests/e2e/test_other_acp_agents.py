"""Other real agents by the Agent Client Protocol, offline, where they are installed (docs/agents-acp.md)."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sublet.daemon.working.job_files import job_files
from sublet.supervisor.acp.provider import AcpProvider
from sublet.supervisor.agent_config import AgentConfig
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from support.gates import ListGate
from support.jobs import Log, job
from support.model_stub import Call, ModelStub, Say, Script
from support.other_models import serving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.mark.skipif(shutil.which("opencode") is None, reason="opencode is not installed here")
@pytest.mark.parametrize("allowed", [True, False])
async def test_opencode_writes_what_it_may(tmp_path: Path, allowed: bool) -> None:
    target = tmp_path / "mount/workspace/notes.md"
    edit = Call("edit", {"filePath": str(target), "oldString": "", "newString": "by opencode\n"})
    config = AgentConfig.model_validate({"id": "opencode", "provider": {"type": "acp", "preset": "opencode"}})
    gate = ListGate(["file.write"] if allowed else [])
    with ModelStub([Script([edit, Say("done")])]) as model:
        settings = {
            "provider": {"anthropic": {"options": {"baseURL": f"{model.url}/v1", "apiKey": "dummy"}}},
            "model": "anthropic/claude-sonnet-4-5",
        }
        environ = {"PATH": os.environ["PATH"], "OPENCODE_CONFIG_CONTENT": json.dumps(settings)}
        work = replace(job(tmp_path, "Write it.", seconds=100), gate=gate)
        outcome = await AcpProvider(config, BubblewrapSandbox(), environ, files=job_files).run(work, Log())
    assert outcome.launched, outcome
    assert gate.asked[0].paths == ("workspace/notes.md",)
    assert target.exists() == allowed


@pytest.mark.skipif(shutil.which("codex-acp") is None, reason="codex-acp is not installed here")
@pytest.mark.parametrize("allowed", [True, False])
async def test_codex_runs_what_it_may(tmp_path: Path, allowed: bool) -> None:
    gate = ListGate(["shell.exec"] if allowed else [])
    with serving("exec_command", {"cmd": "touch notes.md"}) as url:
        stub = f'{{name="stub",base_url="{url}/v1",wire_api="responses",env_key="OPENAI_API_KEY"}}'
        settings = [
            'model_provider="stub"',
            f"model_providers.stub={stub}",
            'approval_policy="untrusted"',
            'sandbox_mode="danger-full-access"',
        ]
        argv = ["codex-acp", *(word for setting in settings for word in ("-c", setting))]
        config = AgentConfig.model_validate(
            {
                "id": "codex",
                "provider": {"type": "acp", "argv": argv},
                "environment": ["OPENAI_API_KEY"],
                "sandbox": {"allow_network": True},
            }
        )
        environ = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "dummy"}
        work = replace(job(tmp_path, "Run it.", seconds=100), gate=gate)
        await AcpProvider(config, BubblewrapSandbox(), environ, files=job_files).run(work, Log())
    assert [(call.tool, call.paths) for call in gate.asked] == [("shell.exec", ("workspace",))]
    assert (tmp_path / "mount/workspace/notes.md").exists() == allowed


@pytest.mark.skipif(shutil.which("gemini") is None, reason="gemini is not installed here")
@pytest.mark.parametrize("allowed", [True, False])
async def test_gemini_writes_what_it_may(tmp_path: Path, allowed: bool) -> None:
    target = tmp_path / "mount/workspace/notes.md"
    config = AgentConfig.model_validate({"id": "gemini", "provider": {"type": "acp", "preset": "gemini"}})
    gate = ListGate(["file.write"] if allowed else [])
    with serving("write_file", {"file_path": str(target), "content": "by gemini\n"}) as url:
        environ = {"PATH": os.environ["PATH"], "GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}
        work = replace(job(tmp_path, "Write it.", seconds=100), gate=gate)
        outcome = await AcpProvider(config, BubblewrapSandbox(), environ, files=job_files).run(work, Log())
    assert (outcome.reason, outcome.summary) == ("done", "done"), outcome
    assert [(call.tool, call.paths) for call in gate.asked] == [("file.write", ("workspace/notes.md",))]
    assert target.exists() == allowed
