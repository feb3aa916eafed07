"""Capabilities as tools of an ACP agent in the sandbox: its own MCP server, each call decided by the gate."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.supervisor.acp.asking import ToolQuestions
from sublet.supervisor.acp.provider import AcpProvider
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.capabilities.registry import read_capabilities
from sublet.supervisor.capabilities.runs import CapabilityRuns
from sublet.supervisor.capabilities.tool_source import CapabilityTools
from sublet.supervisor.processes import ProcessOwners
from sublet.supervisor.tool_server.names import named
from sublet.supervisor.tool_server.opened import OwnTools
from sublet.supervisor.tools import ToolOffer
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from support import acp_agent
from support.gates import ListGate
from support.jobs import Log, job

pytestmark = pytest.mark.anyio

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"
TOUCH = {"id": "touch", "name": "t", "version": "1", "description": "makes a file", "command": "touch"}


def agent(**rules: object) -> AgentConfig:
    return AgentConfig.model_validate(
        {
            "id": "test",
            "provider": {"type": "acp", "argv": [PYTHON, acp_agent.__file__, "tools"]},
            "sandbox": {"readable": [str(Path(acp_agent.__file__).parent)]},
            "governance": {"acp": {"injectCapabilities": True, **rules}},
        }
    )


async def told(
    tmp_path: Path,
    calls: list[tuple[str, Mapping[str, object]]],
    gate: ListGate | None,
    *,
    config: AgentConfig | None = None,
    may: Callable[[str, str], bool] = lambda _agent, _tool: True,
) -> list[Any]:
    """Have the agent make ``calls`` of its server's tools and return what it tells of it."""
    root = tmp_path / "capabilities"
    (root / "touch").mkdir(parents=True)
    (root / "touch" / "module.json").write_text(json.dumps(TOUCH))
    (root / "touch" / "cli.md").write_text("# touch NAME\n")
    found = read_capabilities([root])
    sandbox = BubblewrapSandbox([root])
    source = CapabilityTools(lambda: found, CapabilityRuns(sandbox, tmp_path / "runs"), lambda _: None, may)
    provider = AcpProvider(config or agent(), sandbox, source=source, owners=ProcessOwners())
    # A path that is too long for the name of a socket.
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    work = replace(job(deep, json.dumps(calls), seconds=60), gate=gate)
    log = Log()
    outcome = await provider.run(work, log)
    assert outcome.reason == "done", (outcome, log.text("stderr"))
    answers = json.loads(outcome.summary)
    assert isinstance(answers, list)
    return answers


async def test_levels_are_told_one_at_a_time_and_a_call_acts_in_the_lease_once_it_is_decided(tmp_path: Path) -> None:
    gate = ListGate(["capability.touch"])
    offered, second, third, made = await told(
        tmp_path,
        [("cap_touch", {"inspect": 2}), ("cap_touch", {"inspect": 3}), ("cap_touch", {"args": ["made"]})],
        gate,
        config=agent(commandNamespace="cap_"),
    )
    assert list(offered) == ["cap_touch"]
    assert "makes a file" in offered["cap_touch"]
    assert "schema of the arguments" not in json.dumps(offered)
    assert "schema of the arguments" in second[1]
    assert "touch NAME" not in second[1]
    assert "touch NAME" in third[1]
    assert made == [False, ""]
    [file] = tmp_path.rglob("made")
    assert file.parent.name == "workspace"
    # Once for each call, although the agent has asked for permission as well.
    assert [call.tool for call in gate.asked] == ["capability.touch"] * 3
    assert gate.told == [("capability.touch", None)] * 3


async def test_what_the_gate_denies_is_not_run(tmp_path: Path) -> None:
    _, refused = await told(tmp_path, [("capability_touch", {"args": ["made"]})], ListGate([]))
    assert refused[0] is True
    assert "Refused by policy" in refused[1]
    assert not list(tmp_path.rglob("made"))


async def test_without_a_gate_nothing_is_run(tmp_path: Path) -> None:
    _, refused = await told(tmp_path, [("capability_touch", {"args": ["made"]})], None)
    assert refused[0] is True
    assert not list(tmp_path.rglob("made"))


async def test_nonsense_is_answered_and_asks_nobody(tmp_path: Path) -> None:
    gate = ListGate(["capability.touch", "mcp.sublet.nothing"])
    _, wrong, unknown = await told(tmp_path, [("capability_touch", {"x": 1}), ("nothing", {})], gate)
    assert "wrong arguments" in wrong[1]
    assert "there is no tool" in unknown[1]
    assert [call.tool for call in gate.asked] == ["mcp.sublet.nothing"]


async def test_an_agent_that_could_call_none_has_no_server(tmp_path: Path) -> None:
    assert await told(tmp_path, [], ListGate([]), may=lambda _agent, _tool: False) == []


def test_names_have_their_namespace_and_no_two_are_one() -> None:
    offers = [ToolOffer(tool, "", {}) for tool in ("capability.a.b", "capability.a_b", "sublet.delegate")]
    assert {name: one.offer.tool for name, one in named(offers, "cap_").items()} == {
        "cap_a_b": "capability.a.b",
        "delegate": "sublet.delegate",
    }


async def test_nobody_but_the_agent_is_answered(tmp_path: Path) -> None:
    offers = named([ToolOffer("capability.touch", "", {"type": "object"})], None)
    work = job(tmp_path, "")
    found = read_capabilities([])
    runs = CapabilityRuns(BubblewrapSandbox(), tmp_path / "runs")
    source = CapabilityTools(lambda: found, runs, chosen=lambda _: None, may=lambda _agent, _tool: True)
    asked: list[int] = []

    def nobodys(pid: int) -> bool:
        asked.append(pid)
        return False

    async with OwnTools(offers, source, nobodys, "test").opened(work, ToolQuestions(work, Log()), "1") as entry:
        home = os.open(Path(entry.args[-1]).parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # by the descriptor, since the whole path may be too long for a socket's name
            stream = await anyio.connect_unix(f"/proc/self/fd/{home}/tools.sock")
        finally:
            os.close(home)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        await stream.aclose()
    assert asked == [os.getpid()]
