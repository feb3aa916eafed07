"""The presets with stand-in programs: what they are started with, and what they get to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.command import CommandProvider
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.presets import PRESETS
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, Unsandboxed
from support.jobs import Log, job

STAND_IN = """#!/bin/sh
echo "argv: $*"
echo "prompt: $(cat)"
echo "key: $ANTHROPIC_API_KEY$OPENAI_API_KEY$GEMINI_API_KEY"
echo "other: $UNRELATED_SECRET"
(cd $HOME && find . -type f ! -name .gitconfig -exec cat {} +)
"""
KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}


def preset(name: str, model: str | None = None) -> AgentConfig:
    provider = {"type": "preset", "name": name} | ({"model": model} if model else {})
    return AgentConfig.model_validate({"id": name, "provider": provider})


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with a stand-in for each program, and a home that holds a login for each."""
    programs, home = tmp_path / "programs", tmp_path / "home"
    programs.mkdir()
    for name in KEYS:
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
        for login in PRESETS[name].login_files:
            (home / login).parent.mkdir(parents=True, exist_ok=True)
            (home / login).write_text(f"login {login}\n")
    (home / ".private").write_text("private")
    return {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home), "UNRELATED_SECRET": "s3cret"}


@pytest.mark.anyio
@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("sandbox", [BubblewrapSandbox(), Unsandboxed()], ids=["bwrap", "unsandboxed"])
async def test_a_key_passes_by_name_and_makes_the_login_needless(
    sandbox: Sandbox, tmp_path: Path, environ: dict[str, str], name: str
) -> None:
    provider = CommandProvider(preset(name), sandbox, {**environ, KEYS[name]: "k3y"})
    outcome = await provider.run(job(tmp_path, "do this"), Log())
    assert outcome.reason == "done", outcome
    command = PRESETS[name].command(confined=bool(sandbox.enforced), model=None)
    assert outcome.summary.splitlines() == [f"argv: {' '.join(command[1:])}", "prompt: do this", "key: k3y", "other:"]


@pytest.mark.anyio
@pytest.mark.parametrize("name", KEYS)
async def test_without_a_key_the_login_is_copied_and_nothing_else_of_the_home(
    tmp_path: Path, environ: dict[str, str], name: str
) -> None:
    outcome = await CommandProvider(preset(name), BubblewrapSandbox(), environ).run(job(tmp_path, "x"), Log())
    seen = sorted(line for line in outcome.summary.splitlines() if line.startswith("login"))
    assert seen == sorted(f"login {login}" for login in PRESETS[name].login_files)
    assert "private" not in outcome.summary


@pytest.mark.anyio
async def test_a_missing_login_is_left_to_the_program(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "home" / ".codex" / "auth.json").unlink()
    outcome = await CommandProvider(preset("codex"), BubblewrapSandbox(), environ).run(job(tmp_path, "x"), Log())
    assert outcome.reason == "done"


def test_an_agent_asks_nobody_only_where_the_sandbox_holds_it() -> None:
    for name, free in [("claude", "Bash,"), ("codex", "danger-full-access"), ("gemini", "yolo")]:
        assert free in " ".join(PRESETS[name].command(confined=True, model=None))
        assert free not in " ".join(PRESETS[name].command(confined=False, model=None))


@pytest.mark.anyio
async def test_settings_are_set_unless_the_owner_has_set_them(tmp_path: Path, environ: dict[str, str]) -> None:
    stand_in = Path(environ["PATH"].partition(":")[0], "claude")
    stand_in.write_text('#!/bin/sh\necho "$DISABLE_AUTOUPDATER $CLAUDE_CODE_MAX_RETRIES $CLAUDE_CODE_TMPDIR"\n')
    work = job(tmp_path, "x")
    outcome = await CommandProvider(preset("claude"), BubblewrapSandbox(), environ).run(work, Log())
    assert outcome.summary == f"1 4 {work.scratch}/tmp"
    chosen = {**environ, "CLAUDE_CODE_MAX_RETRIES": "0"}
    outcome = await CommandProvider(preset("claude"), BubblewrapSandbox(), chosen).run(work, Log())
    assert outcome.summary == f"1 0 {work.scratch}/tmp"


@pytest.mark.parametrize("confined", [True, False])
@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("claude", "--strict-mcp-config --setting-sources user"),
        ("codex", "--ignore-rules"),
        ("gemini", "--skip-trust"),
    ],
)
def test_what_the_lent_directory_configures_is_left_unread(name: str, flags: str, confined: bool) -> None:
    """What the flags do is seen with the real program where its endpoint can be scripted, in tests/e2e."""
    assert flags in " ".join(PRESETS[name].command(confined=confined, model=None))
    assert "GEMINI_CLI_TRUST_WORKSPACE" not in PRESETS[name].environment


def test_a_model_is_one_argument_of_its_own() -> None:
    assert PRESETS["claude"].command(confined=True, model="opus 4; id")[-2:] == ("--model", "opus 4; id")
    assert PRESETS["shell"].command(confined=True, model=None) == ("sh", "-s")
