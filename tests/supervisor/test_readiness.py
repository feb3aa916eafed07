"""What an agent lacks on a machine, what a prompt to it is, and adding one by its word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.protocol.errors import SubletError
from sublet.supervisor.agent_config import AgentConfig, load_agents
from sublet.supervisor.command import is_prose
from sublet.supervisor.presets import ACP_PRESETS, PRESETS
from sublet.supervisor.prompt_kind import prompt_kind
from sublet.supervisor.readiness import lacks, unable
from sublet.supervisor.well_known.adding import add_agent
from sublet.supervisor.well_known.catalogue import WELL_KNOWN


def agent(**provider: Any) -> AgentConfig:
    return AgentConfig.model_validate({"id": "one", "provider": provider})


@pytest.fixture
def around(tmp_path: Path) -> dict[str, str]:
    """An environment with nothing in it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    return {"PATH": str(programs), "HOME": str(tmp_path)}


def install(around: dict[str, str], name: str) -> None:
    program = Path(around["PATH"]) / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "shell"])
def test_a_preset_lacks_its_program_then_its_login_then_nothing(around: dict[str, str], name: str) -> None:
    config, preset = agent(type="preset", name=name), PRESETS[name]
    program, login = lacks(config, around)
    assert unable(config, around) == program
    assert preset.install in program.remedy
    install(around, preset.argv[0])
    assert lacks(config, around) == [login]
    assert login.remedy == preset.log_in
    assert unable(config, around) is None
    assert lacks(config, {**around, preset.login_variables[0]: "key"}) == []
    kept = Path(around["HOME"]) / preset.login_files[0]
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    assert lacks(config, around) == []


@pytest.mark.parametrize("name", ACP_PRESETS)
def test_an_acp_preset_lacks_its_adapter(around: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, preset = agent(type="acp", preset=name), ACP_PRESETS[name].program
    found = unable(config, around)
    assert found is not None
    assert preset.install in found.remedy
    assert preset.install.startswith("npm install -g ")
    install(around, preset.argv[0])
    assert unable(config, around) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = unable(config, around)
    assert found is not None
    assert "sublet[acp]" in found.remedy


def test_what_peers_are_told_names_no_path(around: dict[str, str]) -> None:
    found = unable(agent(type="command", argv=["/opt/secret place/tool"]), around)
    assert found is not None
    assert "secret place" not in found.what


def test_a_program_of_the_lent_directory_is_not_looked_for(around: dict[str, str]) -> None:
    assert lacks(agent(type="command", argv=["./run"]), around) == []


@pytest.mark.parametrize(
    ("provider", "kind"),
    [
        ({"type": "preset", "name": "shell"}, "script"),
        ({"type": "command", "argv": ["sh", "-s"]}, "script"),
        ({"type": "command", "argv": ["/bin/bash"]}, "script"),
        ({"type": "command", "argv": ["sh", "-c", "cat"]}, "anything"),
        ({"type": "command", "argv": ["bash", "mine.sh"]}, "anything"),
        ({"type": "command", "argv": ["mine"]}, "anything"),
        ({"type": "preset", "name": "claude"}, "prose"),
        ({"type": "acp", "preset": "opencode"}, "prose"),
    ],
)
def test_what_a_prompt_is(provider: dict[str, Any], kind: str) -> None:
    assert prompt_kind(agent(**provider)) == kind


@pytest.mark.parametrize(
    ("prompt", "prose"),
    [
        ("Run the test suite and repair what fails.", True),
        ("make test", False),
        ("Run tests", False),
        ("Xvfb :1 & make test", False),
        ("A=1 make test", False),
        ("for one in *; do echo $one; done", False),
        ("", False),
    ],
)
def test_what_looks_like_prose(prompt: str, prose: bool) -> None:
    assert is_prose(prompt) is prose


@pytest.mark.parametrize("name", WELL_KNOWN)
def test_every_word_is_a_file_that_loads(name: str) -> None:
    (config,) = load_agents(WELL_KNOWN[name])
    assert config.id == name


def test_adding_keeps_what_stands_there(tmp_path: Path) -> None:
    file = tmp_path / "config" / "agent.json"
    add_agent(file, "claude", "claude", default=False)
    assert [one.id for one in load_agents(file)] == ["claude", "shell"], "what was offered without a file stays"
    add_agent(file, "codex", "second", default=False)
    add_agent(file, "gemini", "first", default=True)
    assert [one.id for one in load_agents(file)] == ["first", "claude", "shell", "second"]
    before = file.read_bytes()
    for name, agent_id in (("codex", "second"), ("codex", "no id!")):
        with pytest.raises(SubletError):
            add_agent(file, name, agent_id, default=False)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["agent.json"]


def test_adding_to_one_agent_makes_a_list_of_it(tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    file.write_text(json.dumps({"id": "mine", "provider": {"type": "command", "argv": ["mine"]}, "timeout_seconds": 5}))
    add_agent(file, "shell", "shell", default=False)
    mine, shell = load_agents(file)
    assert (mine.id, mine.timeout_seconds, shell.id) == ("mine", 5, "shell")


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"provider": {}}'])
def test_a_broken_file_is_left_as_it_is(tmp_path: Path, broken: str) -> None:
    file = tmp_path / "agent.json"
    file.write_text(broken)
    with pytest.raises(SubletError):
        add_agent(file, "shell", "shell", default=False)
    assert file.read_text() == broken
