"""D26: a deny over paths holds against the programs that an agent runs, in the real sandbox."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sublet.policy.config import parse
from sublet.policy.decision import Subject
from sublet.policy.path_denies import PathDenies, path_denies
from sublet.protocol.errors import SubletError
from sublet.supervisor import closed_paths as closing
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.capabilities.registry import read_capabilities
from sublet.supervisor.capabilities.runs import CapabilityRuns
from sublet.supervisor.closed_paths import closed_paths
from sublet.supervisor.confined_runs import ConfinedRuns
from sublet.supervisor.job import Job
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from support.gates import ListGate
from support.jobs import command, job

pytestmark = pytest.mark.anyio
_IDS = itertools.count()
WORKER = Subject("agent", "worker", role="executor")


def deny(tool: str, condition: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": f"r{next(_IDS)}",
        "effect": "deny",
        "action": "tool.call",
        "resource": tool,
        "when": {"path": condition, **more},
    }


def denies(*rules: dict[str, Any], now: float = 0.0) -> PathDenies:
    made = parse({"version": 1, "global": list(rules)}).rules
    return path_denies(made, WORKER, {"access_mode": "rw", "peer": "bob"}, now)


def lent(root: Path, *rules: dict[str, Any]) -> Job:
    """Return a job whose directory holds something of each kind, under ``rules``."""
    gate = ListGate()
    gate.denies = denies(*rules)
    made = replace(job(root, ""), gate=gate)
    for name in ("secrets/key", "secrets/deep/more", "src/a.py", "src/.env", "infra/main.tf", "infra/x/y"):
        path = made.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return made


async def shell(work: Job, line: str) -> tuple[str, str]:
    runs = ConfinedRuns(command(), work, BubblewrapSandbox(), {"PATH": os.environ["PATH"]})
    try:
        ran = await runs.run(["sh", "-c", line], 20)
    finally:
        await runs.close()
    return ran.stdout, ran.stderr


READ = [deny("file.*", {"within": "secrets"}), deny("file.read", {"like": "**/.env"})]
WRITE = [deny("file.write", {"within": ["infra"]})]


@pytest.mark.parametrize(
    "line",
    [
        "cat secrets/key",
        "cat secrets/deep/more",
        "cat src/.env",
        "cd src && cat .env",
        "cat ../workspace/secrets/key",
        "cp -r secrets /tmp/x && cat /tmp/x/key",
        "ln -s secrets/key l && cat l",
        "ln secrets/key l && cat l",
        "mv secrets s2 && cat s2/key",
        "find . -type f -exec cat {} +",
        "grep -r . .",
        "tar cf - . | tar xOf -",
    ],
)
async def test_what_may_not_be_read_is_not_there(tmp_path: Path, line: str) -> None:
    work = lent(tmp_path, *READ)
    out, _ = await shell(work, line)
    assert "secrets/key" not in out.replace("./secrets/key", "")
    assert "secrets/deep/more" not in out
    assert "src/.env" not in out.replace("./src/.env", "")
    assert (await shell(work, "cat src/a.py"))[0] == "src/a.py"
    assert (work.workspace / "secrets/key").read_text() == "secrets/key"


@pytest.mark.parametrize(
    "line",
    [
        "echo x > infra/main.tf",
        "echo x >> infra/main.tf",
        "rm -f infra/main.tf",
        "rm -rf infra",
        "mv infra/main.tf m",
        "echo x > infra/new",
        "mkdir infra/d",
        "chmod 777 infra/main.tf",
        "ln -s infra/main.tf l; echo x > l",
        "ln infra/main.tf l && echo x > l",
        "sed -i s/i/x/ infra/main.tf",
        "mv src/a.py infra/main.tf",
        "truncate -s 0 infra/x/y",
    ],
)
async def test_what_may_not_be_written_is_read_only(tmp_path: Path, line: str) -> None:
    work = lent(tmp_path, *WRITE)
    await shell(work, line)
    there = sorted(str(path.relative_to(work.workspace)) for path in (work.workspace / "infra").rglob("*"))
    assert there == ["infra/main.tf", "infra/x", "infra/x/y"]
    assert (work.workspace / "infra/main.tf").read_text() == "infra/main.tf"
    assert (work.workspace / "infra/x/y").read_text() == "infra/x/y"
    assert (await shell(work, "cat infra/main.tf && echo x > src/a.py && cat src/a.py"))[0] == "infra/main.tfx\n"


@pytest.mark.parametrize(
    ("rule", "unreadable", "unwritable"),
    [
        (deny("file.*", "a"), True, True),
        (deny("*", "a"), True, True),
        (deny("Read", "a"), True, False),
        (deny("file.edit", "a"), False, True),
        (deny("file.delete", "a"), False, False),
        (deny("mcp.*", "a"), False, False),
        (deny("file.*", "a", peer="bob"), True, True),
        (deny("file.*", "a", peer="eve"), False, False),
        (deny("file.*", "a", **{"args.x": "1"}), False, False),
        ({**deny("file.*", "a"), "subject": {"name": "WORKER"}}, True, True),
        ({**deny("file.*", "a"), "subject": {"name": "other"}}, False, False),
        ({**deny("file.*", "a"), "subject": {"role": "reviewer"}}, False, False),
        ({**deny("file.*", "a"), "effect": "approval"}, False, False),
        ({**deny("file.*", "a"), "times": {"from": "08:00", "to": "09:00"}}, False, False),
    ],
)
def test_which_rules_close_a_path(rule: dict[str, Any], unreadable: bool, unwritable: bool) -> None:
    found = denies(rule)
    assert (found.unreadable("a"), found.unwritable("a")) == (unreadable, unwritable)
    assert bool(found) == (unreadable or unwritable)


async def test_nothing_is_started_that_could_not_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = lent(tmp_path, *READ)
    monkeypatch.setattr(closing, "MAX_LOOKED_AT", 1)
    with pytest.raises(SubletError, match="no program is started"):
        await closed_paths(work)
    assert await closed_paths(replace(work, gate=ListGate())) == ()
    assert isinstance(command(), AgentConfig)


async def test_a_capability_of_the_agent_is_held_to_them_as_well(tmp_path: Path) -> None:
    module = {
        "id": "peek", "name": "Peek", "version": "1", "description": "d", "command": "cat", "defaultArgs": [],
    }  # fmt: skip
    directory = tmp_path / "capabilities" / "peek"
    directory.mkdir(parents=True)
    (directory / "module.json").write_text(json.dumps(module))
    (directory / "README.md").write_text("r")
    (directory / "cli.md").write_text("c")
    work = lent(tmp_path, *READ)
    runs = CapabilityRuns(BubblewrapSandbox(), tmp_path / "runs", environ={"PATH": os.environ["PATH"]})
    peek = read_capabilities([tmp_path / "capabilities"]).get("peek")
    ended = await runs.run(peek, ["src/a.py", "secrets/key"], job=work)
    assert ended.stdout == "src/a.py"
    assert ended.exit_code == 1
