"""README's way from a clean clone to the first delegation, with the real Claude Code as host and as worker.

The commands are README's own, read from the clone and run in their order by Alice and Bob, each at a machine with an
empty home. Of the two programs only the model is played: it is scripted, on the loopback of each machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support import claude_code
from support.model_stub import Call, ModelStub, Results, Say, Script
from support.namespaces import Machine, needs_root, two_machines
from support.pages.fences import ROOT, Fence, fences

pytestmark = pytest.mark.anyio

STEP_SECONDS: Final = 400
SAID: Final = "have bob run the test suite of this project and repair what fails."
ASKED: Final = "Run the test suite and repair what fails."
TOOLS: Final = ("delegate", "delegate_output")
TEST: Final = """import unittest
from greeting import greeting

class Greets(unittest.TestCase):
    def test_it_greets(self):
        self.assertEqual(greeting(), "hello world")

unittest.main()
"""
BROKEN: Final = 'def greeting():\n    return "helo world"\n'
MENDED: Final = BROKEN.replace("helo", "hello")


@dataclass(frozen=True)
class Person:
    """Somebody at a machine of their own; ``environ`` is what their shell has besides an empty home."""

    machine: Machine
    home: Path
    environ: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the shell: nothing of the tests' own."""
        passed = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "LANG"}
        return {
            **passed,
            "PIP_COMPILE": "0",  # what is used is compiled when it is first used
            "HOME": str(self.home),
            "PATH": f"{self.home}/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "TMPDIR": tempfile.gettempdir(),  # sockets lie below it, whose paths are short
            **self.environ,
        }

    def types(self, script: str, cwd: Path) -> str:
        """Run a script as it stands, and return what it printed; it has to work to its last line."""
        done = subprocess.run(
            [*self.machine.prefix, "bash", "-e", "-c", script],
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@dataclass(frozen=True)
class Walk:
    """What README says to do, in order, up to the talk while it works."""

    setup: Fence
    linked: Fence
    worker: Fence
    host: Fence
    terminal: Fence

    @classmethod
    def of(cls, clone: Path) -> Walk:
        """Return the commands of a clone's README."""
        readme = clone / "README.md"
        lines = readme.read_text(encoding="utf-8").splitlines()
        first, last = lines.index("## Install"), lines.index("## Talk while it works")
        return cls(*(fence for fence in fences(readme, clone) if first < fence.line < last))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clean clone of what is committed in this checkout."""
    claude_code.program()
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no checkout of git, so there is nothing to clone")
    made = tmp_path_factory.mktemp("walk") / "sublet"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(made)], check=True, capture_output=True)
    return made


@contextmanager
def people(base: Path, worker_model: ModelStub, host_model: ModelStub) -> Iterator[tuple[Person, Person]]:
    """Yield Alice and Bob, whose machines are joined by a cable; nothing of them runs afterwards."""
    with two_machines() as (left, right):
        with left.inside():
            host_model.__enter__()
        try:
            with right.inside():
                worker_model.__enter__()
            try:
                here: list[Person] = []
                for name, machine, model in (("alice", left, host_model), ("bob", right, worker_model)):
                    home = base / name
                    bin_ = home / ".local" / "bin"
                    bin_.mkdir(parents=True)
                    (bin_ / "claude").symlink_to(claude_code.program())
                    here.append(Person(machine, home, claude_code.environment(home, model.url) | _own(home)))
                yield here[0], here[1]
            finally:
                worker_model.__exit__(None, None, None)
        finally:
            host_model.__exit__(None, None, None)


def _own(home: Path) -> dict[str, str]:
    """Return what the environment of Claude Code leaves to a shell: its own path and directory for sockets."""
    return {"PATH": f"{home}/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "TMPDIR": tempfile.gettempdir()}


def lending(project: Path) -> Script:
    """What Claude Code does at Alice's when she says README's sentence."""

    def report(results: Results) -> str:
        end = results[1].json()
        return f"bob is {end['state']} and said: {end['from_peer']['summary']}"

    return Script(
        [
            Call("sublet__delegate", {"workspace_dir": str(project), "peer": "bob", "prompt": SAID}),
            Call(
                "sublet__delegate_output",
                lambda results: {
                    "delegation_id": results[0].json()["delegation_id"],
                    "section": "summary",
                    "wait_seconds": 40,
                },
            ),
            Say(report),
        ],
        when=SAID,
    )


def repairing(prompt: str) -> Script:
    """What Claude Code does at Bob's: it runs the tests, reads, repairs, and runs them again."""

    def suite(what: str) -> Call:
        return Call("Bash", {"command": "python3 test_greeting.py 2>&1; pwd", "description": what})

    def source(results: Results) -> str:
        return f"{results[0].text.strip().splitlines()[-1]}/greeting.py"

    return Script(
        [
            suite("run the tests"),
            Call("Read", lambda results: {"file_path": source(results)}),
            Call(
                "Edit",
                lambda results: {"file_path": source(results), "old_string": "helo", "new_string": "hello"},
            ),
            suite("run them again"),
            Say("The tests pass now."),
        ],
        when=prompt,
    )


def mounted(below: Sequence[Path]) -> list[str]:
    """Return what is mounted below one of these directories."""
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [place for place in places if any(str(one) in place for one in below)]


@needs_root
@pytest.mark.timeout(900)
async def test_readme_from_a_clean_clone_to_the_first_delegation(clone: Path, tmp_path: Path) -> None:
    """Who types README gets what it says: by the host's sentence, and by the two commands in a terminal."""
    walk = Walk.of(clone)
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_greeting.py").write_text(TEST)
    (project / "greeting.py").write_text(BROKEN)
    (project / ".env").write_text("TOKEN=hunter2\n")

    worker_model, host_model = ModelStub([repairing(SAID), repairing(ASKED)]), ModelStub([lending(project)])
    with people(tmp_path, worker_model, host_model) as (alice, bob):
        # Install: one checkout is enough here for both, who each link to it. It needs the network of this machine.
        subprocess.run(
            ["bash", "-e", "-c", walk.setup.text],
            cwd=clone,
            env=alice.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=STEP_SECONDS,
        )
        try:
            for person in (alice, bob):
                assert "sublet" in person.types(walk.linked.text, clone)

            started = bob.types(walk.worker.text, bob.home)
            (link,) = re.findall(r"sublet\+\S+", started)
            alice.types(walk.host.text.replace("LINK", link), project)
            assert "sublet" in json.loads((alice.home / ".claude.json").read_text())["mcpServers"]

            run = await claude_code.run(
                [
                    *(*alice.machine.prefix, "claude", "-p", "--output-format", "json"),
                    *("--allowedTools", ",".join(f"mcp__sublet__{tool}" for tool in TOOLS)),
                ],
                SAID,
                cwd=project,
                env=alice.environment,
            )
            assert run.exit_code == 0, run.stderr
            assert (host_model.faults, worker_model.faults) == ([], [])
            assert run.json()["result"] == "bob is completed and said: The tests pass now."
            assert (project / "greeting.py").read_text() == MENDED
            first, *_, last = worker_model.results
            assert ("FAILED" in first.text, "OK" in last.text) == (True, True)

            (project / "greeting.py").write_text(BROKEN)
            printed = alice.types(walk.terminal.text, project)
            assert "The tests pass now." in printed
            assert '-    return "helo world"\n+    return "hello world"\n' in printed
            assert (project / "greeting.py").read_text() == MENDED
            assert worker_model.faults == []
            assert mounted([tmp_path]) == []
        finally:
            for person in (alice, bob):
                person.types("sublet down || true", person.home)
    assert not any("hunter2" in result.text for result in [*worker_model.results, *host_model.results])
    assert mounted([tmp_path]) == []


def test_the_walk_is_whole() -> None:
    """What is noted as walked is a command of the walk, and of README's two sections nothing else is left out."""
    walk = Walk.of(ROOT)
    noted = [fence for fence in fences(ROOT / "README.md") if "walked" in fence.notes]
    assert noted == [walk.setup, walk.worker]
    assert "--agent claude" in walk.worker.text
    assert "sublet mcp install --client claude" in walk.host.text
    assert "sublet diff last" in walk.terminal.text
