"""Capabilities as a model's tools: offered by their first level, asked of the gate, run in the lease."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sublet.supervisor.capabilities.registry import read_capabilities
from sublet.supervisor.capabilities.runs import CapabilityRuns
from sublet.supervisor.capabilities.tool_source import CapabilityTools
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from support.chat_process import Step
from support.gates import ListGate
from support.model_jobs import ModelWorld, model_world

pytestmark = pytest.mark.anyio
CALL: Step = {"calls": [["capability_touch", {"args": ["made"]}]]}
DONE: Step = {"say": "Done."}


def with_touch(world: ModelWorld, root: Path) -> None:
    (root / "capabilities" / "touch").mkdir(parents=True)
    file = {"id": "touch", "name": "t", "version": "1", "description": "makes a file", "command": "touch"}
    (root / "capabilities" / "touch" / "module.json").write_text(json.dumps(file))
    found = read_capabilities([root / "capabilities"])
    runs = CapabilityRuns(BubblewrapSandbox([root / "capabilities"]), root / "runs")
    world.source = CapabilityTools(lambda: found, runs, chosen=lambda _: None, may=lambda _agent, _tool: True)


async def test_a_capability_is_offered_asked_for_and_run_in_the_lease(tmp_path: Path) -> None:
    with model_world(tmp_path / "w", [CALL, DONE]) as world:
        with_touch(world, tmp_path)
        outcome = await world.run()
        assert outcome.reason == "done"
        tools = {tool["function"]["name"]: tool["function"] for tool in world.stub.requests()[0]["body"]["tools"]}
        assert "makes a file" in tools["capability_touch"]["description"]
        assert [call.tool for call in world.gate.asked] == ["capability.touch"]
        assert (world.workspace / "made").exists()


async def test_one_that_the_gate_refuses_does_not_run(tmp_path: Path) -> None:
    with model_world(tmp_path / "w", [CALL, DONE]) as world:
        with_touch(world, tmp_path)
        world.gate = ListGate(["file.read"])
        await world.run()
        assert not (world.workspace / "made").exists()
