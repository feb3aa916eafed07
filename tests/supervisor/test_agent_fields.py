"""What ``agent.json`` says of an agent reaches what works by it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from nacl.signing import SigningKey

from sublet.a2a_wire.card import make_card
from sublet.daemon.governing.agent_rules import rules_of
from sublet.policy.decision import Decision
from sublet.protocol import ids
from sublet.supervisor.a2a_config import A2aConfig
from sublet.supervisor.acp.presets import acp_plan
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.chat.mcp_server import McpServer
from sublet.supervisor.command import plan
from sublet.supervisor.confined_runs import ConfinedRuns
from sublet.supervisor.job import Job
from sublet.supervisor.limits import Cage
from sublet.supervisor.remote_agent import RemoteAgentProvider, RemoteNews
from sublet.supervisor.supervisor_agent import candidate_of
from sublet.workspace.sandbox.bubblewrap import Unsandboxed
from support.chat_process import Step
from support.gates import ListGate
from support.jobs import Log, job
from support.model_jobs import model_world

pytestmark = pytest.mark.anyio
DONE: Step = {"say": "Done."}
MODEL = {"type": "model", "base_url": "http://127.0.0.1:1/v1", "model": "m"}


def agent(**more: Any) -> AgentConfig:
    given = {"id": "coder", "role": "executor", "provider": {"type": "command", "argv": ["sh", "-s"]}, **more}
    return AgentConfig.model_validate(given)


def test_the_card_shows_the_agent() -> None:
    key = SigningKey(b"k" * 32)
    public = bytes(key.verify_key)
    one = agent(name="Coder", description="Mends builds", version="7.1")
    card = make_card(
        [one],
        url="http://127.0.0.1:1/",
        version="0",
        node_id=ids.node_id(public),
        key=key,
        fingerprint=ids.fingerprint(public),
    )
    assert (card.description, card.version) == ("Mends builds", "7.1")
    assert "Coder" in card.name


def test_the_router_sees_role_cost_and_trust() -> None:
    allowed = Decision(allowed=True, layer="", rule="", reason="")
    seen = candidate_of(agent(role="reviewer", routing={"cost": 3, "trust": 0.25}), allowed, 0.0)
    assert (seen.role, seen.cost, seen.trust) == ("reviewer", 3, 0.25)


def test_rules_are_made_of_tools_and_governance() -> None:
    tools = {
        "whitelist": ["file.read", "file.write", "capability.listed"],
        "blacklist": ["shell.exec"],
        "authorization_required": ["file.write"],
    }
    own = {
        "allowedTools": ["capability.deploy", "file.read", "file.write"],
        "disallowedTools": ["network.fetch"],
        "approvalMode": "plan",
    }
    provider = {"type": "acp", "argv": ["x"]}
    made = rules_of([agent(provider=provider, tools=tools, governance={"acp": own})])
    told = {(str(rule.effect), str(rule.resource)) for rule in made}
    text = repr(made)
    assert {effect for effect, _ in told} >= {"allow", "deny", "approval"}
    for name in (
        "capability.listed",
        "shell.exec",
        "file.write",
        "capability.deploy",
        "network.fetch",
        "approvalMode.plan",
    ):
        assert name in text, name


def test_a_program_is_called_with_its_model_and_mode() -> None:
    acp = acp_plan(agent(provider={"type": "acp", "preset": "gemini", "model": "big"}), {})
    assert "big" in acp.program.argv
    iflow = acp_plan(agent(provider={"type": "iflow", "model": "big", "mode": "yolo"}), {})
    assert "big" in iflow.program.argv
    assert iflow.mode == "yolo"
    preset = plan(agent(provider={"type": "preset", "name": "claude", "model": "big"}), Unsandboxed(), {})
    assert "big" in preset.argv


async def test_a_model_is_asked_as_the_agent_says(tmp_path: Path) -> None:
    more = {"instructions": "Be brief.", "temperature": 0.5, "max_answer_tokens": 77}
    with model_world(tmp_path, [DONE]) as world:
        provider = world.config.provider.model_copy(update=more)
        world.config = AgentConfig.model_validate(
            {**world.config.model_dump(exclude_defaults=True), "provider": provider.model_dump(exclude_defaults=True)}
        )
        await world.run()
        body = world.stub.requests()[0]["body"]
    assert "Be brief." in body["messages"][0]["content"]
    assert (body["temperature"], body["max_tokens"]) == (0.5, 77)


def test_http_to_other_machines_has_to_be_allowed() -> None:
    model = {**MODEL, "base_url": "http://models.example/v1", "allow_plaintext": True}
    server = {"url": "http://tools.example/mcp", "allow_plaintext": True}
    found = agent(provider=model, mcpServers={"tools": server})
    assert found.mcp_servers["tools"].url == "http://tools.example/mcp"


class Elsewhere:
    """Keeps who is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[A2aConfig, str]] = []

    async def ask(
        self, target: A2aConfig, agent_id: str, job: Job, *, token: str, context: str | None
    ) -> AsyncGenerator[RemoteNews, None]:
        self.asked.append((target, token))
        yield RemoteNews("done")


async def test_an_agent_elsewhere_is_asked_where_it_is(tmp_path: Path) -> None:
    remote = Elsewhere()
    by_url = agent(provider={"type": "a2a", "url": "https://agents.example/", "token_env": "AGENT_TOKEN"})
    by_name = agent(provider={"type": "a2a", "peer": "bob/coder"})
    gate = ListGate(["network.fetch"])
    for config in (by_url, by_name):
        given = job(tmp_path, "hello")
        provider = RemoteAgentProvider(config, remote, {"AGENT_TOKEN": "s3"})
        assert (await provider.run(Job(**{**vars_of(given), "gate": gate}), Log())).reason == "done"
    assert [(one.url, one.peer, token) for one, token in remote.asked] == [
        ("https://agents.example/", None, "s3"),
        (None, "bob/coder", ""),
    ]
    assert [call.arguments["url"] for call in gate.asked] == ["https://agents.example/"]


def vars_of(given: Job) -> dict[str, Any]:
    return {name: getattr(given, name) for name in given.__dataclass_fields__}


class Bounds:
    """Keeps the bounds that a cage is opened with."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def open(self, name: str, **bounds: Any) -> Cage:
        self.told = bounds
        raise OSError("enough is known")


def test_a_program_is_held_to_the_bounds_of_its_agent(tmp_path: Path) -> None:
    limits = {"memory_bytes": 1 << 28, "processes": 9, "cpu_seconds": 8, "scratch_bytes": 1 << 22}
    bounds = Bounds()
    environ = {"PATH": "/usr/bin:/bin"}
    runs = ConfinedRuns(agent(limits=limits), job(tmp_path, ""), Unsandboxed(), environ, cast("Any", bounds))
    with pytest.raises(OSError, match="enough"):
        runs._cage()
    assert {name: bounds.told[name] for name in limits} == limits
    launch = runs._launch(["sh"], ())
    assert launch.scratch_bytes == 1 << 22


async def test_a_tool_server_is_started_or_called_as_the_agent_says(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    async def keep(server: McpServer) -> None:
        async with AsyncExitStack() as opened:
            with server._send, server._requests, pytest.raises(KeyError):
                await server._connect(opened)

    def called(*given: Any, **named: Any) -> Any:
        told.append(given[1:] if isinstance(given[0], McpServer) else given[0])
        raise KeyError("enough is known")

    monkeypatch.setattr(McpServer, "_program", called)
    monkeypatch.setattr("sublet.supervisor.chat.mcp_http.bounded_client", called)
    servers = {
        "here": {"command": "tool", "args": ["serve"], "env": ["TOOL_KEY"]},
        "there": {"url": "https://tools.example/mcp", "token_env": "TOOL_TOKEN"},
    }
    found = agent(provider=MODEL, mcpServers=servers).mcp_servers
    for name in servers:
        await keep(McpServer(name, found[name], cast("Any", None), {"TOOL_TOKEN": "s3"}))
    assert told == [(["tool", "serve"], ("TOOL_KEY",)), {"Authorization": "Bearer s3"}]
