"""``agent.json``: what it may hold, and how its defects are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.agent_config import AgentConfig, agent_json_schema, load_agents
from sublet.supervisor.command import CommandProvider
from sublet.supervisor.provider_config import PresetConfig
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from support.jobs import Log, job

ROOT = Path(__file__).resolve().parents[2]
MODEL: dict[str, object] = {"type": "model", "base_url": "https://example.com/v1", "model": "m"}
SHELL = {"id": "a", "provider": {"type": "command", "argv": ["sh", "-s"]}}

# Section 7.3 of the governance spec, as it stands there.
SPEC_EXAMPLE: dict[str, Any] = {
    "id": "executor-1",
    "role": "executor",
    "provider": {"type": "iflow", "model": "gpt-5.3-codex"},
    "session": {"bindingScope": "finger+agent", "resume": True},
    "tools": {
        "whitelist": ["shell.exec", "capability.bd"],
        "blacklist": ["file.delete"],
        "authorizationRequired": ["shell.exec"],
    },
    "governance": {
        "iflow": {
            "allowedTools": ["read_file", "write_file"],
            "disallowedTools": ["network"],
            "approvalMode": "default",
            "injectCapabilities": True,
            "commandNamespace": "cap_",
        }
    },
}


def load(tmp_path: Path, document: object) -> list[AgentConfig]:
    path = tmp_path / "agent.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return load_agents(path)


def refusal(tmp_path: Path, document: object) -> str:
    with pytest.raises(SubletError) as caught:
        load(tmp_path, document)
    assert caught.value.code == LocalCode.INVALID_ARGUMENT
    return caught.value.message.removeprefix(f"{tmp_path / 'agent.json'}")


def test_one_agent_or_several_with_the_first_as_default(tmp_path: Path) -> None:
    assert [agent.id for agent in load(tmp_path, SHELL)] == ["a"]
    several = {"agents": [{**SHELL, "id": "b"}, {**SHELL, "name": "The A"}]}
    agents = load(tmp_path, several)
    assert [agent.id for agent in agents] == ["b", "a"]
    assert [agent.display_name for agent in agents] == ["b", "The A"]


def test_defaults_are_strict(tmp_path: Path) -> None:
    (agent,) = load(tmp_path, SHELL)
    assert agent.allow_network is False
    assert agent.sandbox.cwd_only is True
    assert agent.environment == ()


def test_a_preset_brings_the_network_it_needs_and_refuses_to_go_without(tmp_path: Path) -> None:
    claude: dict[str, Any] = {"id": "c", "provider": {"type": "preset", "name": "claude", "model": "opus"}}
    (agent,) = load(tmp_path, claude)
    assert isinstance(agent.provider, PresetConfig)
    assert agent.allow_network is True
    said = refusal(tmp_path, {**claude, "sandbox": {"allow_network": False}})
    assert "preset 'claude' needs the network" in said
    (shell,) = load(tmp_path, {"id": "s", "provider": {"type": "preset", "name": "shell"}})
    assert shell.allow_network is False


@pytest.mark.parametrize(
    ("change", "where", "reason"),
    [
        ({"provider": {"type": "acp"}}, "provider", "name either a preset or the argv"),
        ({"provider": {"type": "iflow", "argv": ["x"]}}, "provider.argv", "no such field"),
        ({"provider": {"type": "model", "model": "m"}}, "provider.base_url", "missing"),
        ({"provider": {**MODEL, "base_url": "http://example.com/v1"}}, "provider", "allow_plaintext"),
        ({"provider": {**MODEL, "base_url": "https://me:secret@example.com"}}, "provider", "user or password"),
        ({"provider": {**MODEL, "api_key": "sk-1"}}, "provider.api_key", "no such field"),
        ({"provider": {**MODEL, "max_cost": 1}}, "provider", "needs prices"),
        ({"provider": {"type": "a2a"}}, "provider", "either a peer or a url"),
        ({"provider": {"type": "a2a", "url": "http://127.0.0.1:1"}}, "provider", "url is https"),
        ({"mcpServers": {"s": {"command": "x"}}}, "mcpServers", "no use for them"),
        ({"provider": MODEL, "mcpServers": {"s": {}}}, "mcpServers.s", "either a command or a url"),
        ({"provider": MODEL, "mcpServers": {"s": {"command": "x", "env": ["LD_X"]}}}, "mcpServers.s.env", "LD_*"),
        (
            {"provider": MODEL, "sandbox": {"allow_exec": False}, "mcpServers": {"s": {"command": "x"}}},
            "mcpServers",
            "needs sandbox.allow_exec",
        ),
        ({"provider": {"type": "magic"}}, "provider", "'command', 'preset'"),
        ({"provider": {"type": "command", "argv": []}}, "provider.argv", "at least 1 item"),
        ({"provider": {"type": "command", "argv": "sh -s"}}, "provider.argv", "array"),
        ({"provider": {"type": "command", "argv": ["{workspace}/x"]}}, "provider.argv", "no placeholder"),
        ({"provider": {"type": "command", "argv": ["a\0"]}}, "provider.argv[0]", "pattern"),
        ({"provider": {"type": "preset", "name": "vim"}}, "provider.name", "'claude'"),
        ({"provider": {"type": "preset", "name": "shell", "model": "x"}}, "provider", "no model to choose"),
        ({"id": "Not A Name"}, "id", "pattern"),
        ({"role": "No Role"}, "role", "pattern"),
        ({"session": {"resume": True}}, "session", "can't resume"),
        ({"session": {"bindingScope": "agent"}}, "session.bindingScope", "'finger' or 'finger+agent'"),
        ({"tools": {"whitelist": ["x"]}}, "tools", "'command' can't enforce tools.whitelist"),
        ({"tools": {"authorizationRequired": ["x"]}}, "tools", "can't enforce tools.authorizationRequired"),
        ({"governance": {"claude": {}}}, "governance", "its own is 'command'"),
        (
            {"governance": {"command": {"allowedTools": ["x"]}}},
            "governance",
            "'command' can't enforce governance.command",
        ),
        ({"sandbox": {"allow_exec": False}}, "sandbox", "can't be kept from starting programs"),
        ({"sandbox": {"cwd_only": False}}, "sandbox.cwd_only", "True"),
        ({"sandbox": {"readable": ["x"]}}, "sandbox.readable[0]", "pattern"),
        ({"environment": ["SUBLET_HOME"]}, "environment", "set by the daemon"),
        ({"environment": ["LD_PRELOAD"]}, "environment", "LD_*"),
        ({"environment": ["A=B"]}, "environment[0]", "pattern"),
        ({"timeout_seconds": 0}, "timeout_seconds", "greater than 0"),
        ({"colour": "red"}, "colour", "no such field"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_place(
    tmp_path: Path, change: dict[str, object], where: str, reason: str
) -> None:
    said = refusal(tmp_path, {**SHELL, **change})
    assert said.startswith(f" at {where}: ")
    assert reason in said
    said = refusal(tmp_path, {"agents": [{**SHELL, "id": "first"}, {**SHELL, **change}]})
    assert said.startswith(f" at agents[1].{where}: ")


def test_the_example_of_the_spec_is_read(tmp_path: Path) -> None:
    (agent,) = load(tmp_path, SPEC_EXAMPLE)
    assert agent.tools.authorization_required == ("shell.exec",)
    rules = agent.governance["iflow"]
    assert rules.disallowed_tools == ("network",)
    assert (rules.inject_capabilities, rules.command_namespace) == (True, "cap_")
    for alone in ({"commandNamespace": "cap_"}, {"capabilityIds": ["bd"]}):
        assert "without injectCapabilities" in refusal(tmp_path, {**SPEC_EXAMPLE, "governance": {"iflow": alone}})


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object"),
        ("[" * 100_000, "not JSON"),
        ('"' + "x" * (1 << 20) + '"', "larger than"),
        ({"agents": [SHELL, SHELL]}, "two agents have the id 'a'"),
        ({"agents": [SHELL], "id": "x"}, "at id: "),
    ],
)
def test_a_file_that_is_no_agent_file_is_told_why(tmp_path: Path, document: object, reason: str) -> None:
    assert reason in refusal(tmp_path, document)


def test_a_file_that_is_not_there_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(SubletError, match="can't be read: No such file"):
        load_agents(tmp_path / "none.json")


def test_the_published_schema_is_that_of_the_models_and_agrees_with_them() -> None:
    published = json.loads((ROOT / "docs/schema/agent.schema.json").read_text(encoding="utf-8"))
    assert published == agent_json_schema(), "run scripts/write-schemas"
    jsonschema.Draft202012Validator.check_schema(published)
    validator = jsonschema.Draft202012Validator(published)
    default = json.loads((ROOT / "agent.json").read_text(encoding="utf-8"))
    good: object
    for good in (default, SHELL, SPEC_EXAMPLE, {"agents": [SHELL]}, {"agents": []}):
        validator.validate(good)
    bad: object
    for bad in ({**SHELL, "tools": {"whitelist": "x"}}, {"agents": {}}):
        assert not validator.is_valid(bad)


@pytest.mark.anyio
async def test_the_default_agent_of_the_repository_works(tmp_path: Path) -> None:
    (agent,) = load_agents(ROOT / "agent.json")
    assert agent.skills
    provider = CommandProvider(agent, BubblewrapSandbox())
    outcome = await provider.run(job(tmp_path, agent.skills[0].examples[2]), Log())
    assert (outcome.reason, outcome.summary) == ("done", "0")


def test_the_example_of_a_model_is_valid() -> None:
    (agent,) = load_agents(Path(__file__).parents[2] / "examples" / "model-agent" / "agent.json")
    assert agent.provider.type == "model"
