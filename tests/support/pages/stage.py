"""The stage of a page: Alice's machine and Bob's, each with a shell, a project and what the page takes for granted."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from support.command_server import command_server
from support.daemons import SUBLET
from support.namespaces import Machine, two_machines
from support.pages.fences import ROOT, Fence, shows, steps

Who = Literal["alice", "bob"]
STEP_SECONDS: Final = 90.0
STAGES: Final = Path(__file__).with_name("stages.toml")
_PERSON = Path(__file__).with_name("person.py")
_BEGIN = """
set -E
failed() { printf '%s\\n' "${1%%$'\\n'*}" >> "$STAGE_FAILED"; }
trap 'failed "$BASH_COMMAND"' ERR
"""


@cache
def stages() -> Mapping[str, Any]:
    """Return what is written of the stages."""
    return tomllib.loads(STAGES.read_text(encoding="utf-8"))


def stage_of(page: str) -> Mapping[str, Any]:
    """Return what is written of the stage of a page."""
    told = stages()["page"].get(page, {})
    return {**told, "placeholders": {**stages()["placeholders"], **told.get("placeholders", {})}}


@dataclass
class Shell:
    """A person's shell, in which variables stay from one step to the next."""

    machine: Machine
    home: Path
    process: subprocess.Popen[str] = field(init=False)
    _steps: int = 0

    def __post_init__(self) -> None:
        runtime = self.home / "run"
        runtime.mkdir(parents=True)
        runtime.chmod(0o700)
        (self.home / "tmp").mkdir()
        programs = self.home / "programs"
        programs.mkdir()
        person = programs / "sublet"
        person.write_text(f'#!/bin/sh\nexec {ROOT}/.venv/bin/python -S -E -I {_PERSON} "$@"\n')
        person.chmod(0o755)
        editor = programs / "editor"
        editor.write_text('#!/bin/sh\nprintf \'%s\\n\' "- [ ] by the editor" >> "$1"\n')
        editor.chmod(0o755)
        (programs / "python").symlink_to(ROOT / ".venv/bin/python")
        self._copy_checkout()
        commands = command_server()._socket.fileno()
        self.process = subprocess.Popen(
            [*self.machine.prefix, "bash", "--noprofile", "--norc"],
            env=self._environment(commands),
            cwd=self.project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=(commands,),
            start_new_session=True,
        )
        self._say(_BEGIN)

    @property
    def project(self) -> Path:
        """Where its commands run: a project with the examples beside it, as in a checkout."""
        return self.home / "project"

    def run(self, text: str) -> tuple[str, list[str]]:
        """Run a script in this shell; return what it printed, and which of its commands failed."""
        script, out, failed = self._files(text)
        self._say(f"STAGE_FAILED={failed}\n{{ source {script}; }} </dev/null >{out} 2>&1\necho 'step {self._steps}'\n")
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], STEP_SECONDS)[0]:
            raise AssertionError(f"it does not end:\n{text}\n{out.read_text()}")
        assert self.process.stdout.readline() == f"step {self._steps}\n", "the shell has ended"
        found = [line for line in failed.read_text().splitlines() if not line.startswith("source ")]
        return out.read_text(encoding="utf-8", errors="replace"), found

    def run_until(self, text: str, printed: str) -> str:
        """Run a script in a shell of its own until it has printed something, interrupt it, and return its output."""
        script, out, _ = self._files(text)
        commands = command_server()._socket.fileno()
        with out.open("w") as writing:
            process = subprocess.Popen(
                [*self.machine.prefix, "bash", "--noprofile", "--norc", str(script)],
                env=self._environment(commands),
                cwd=self.project,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=(commands,),
                start_new_session=True,
            )
        deadline = time.monotonic() + STEP_SECONDS
        try:
            while printed not in out.read_text():
                assert process.poll() is None, f"it has ended without {printed!r}:\n{out.read_text()}"
                assert time.monotonic() < deadline, f"it has not printed {printed!r}:\n{out.read_text()}"
                time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return out.read_text()

    def close(self) -> None:
        """End the shell."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        os.killpg(self.process.pid, signal.SIGKILL)  # and what it has started beside it
        self.process.wait()
        self.process.stdout.close()

    def _files(self, text: str) -> tuple[Path, Path, Path]:
        self._steps += 1
        script, out, failed = (self.home / "tmp" / f"{self._steps}.{kind}" for kind in ("sh", "out", "failed"))
        script.write_text(text)
        failed.write_text("")
        return script, out, failed

    def _say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def _environment(self, commands: int) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{self.home}/programs:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TMPDIR": tempfile.gettempdir(),  # sockets lie below it, whose paths are short
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "EDITOR": "editor",
            "GIT_AUTHOR_NAME": "Alice",
            "GIT_AUTHOR_EMAIL": "alice@example.net",
            "GIT_COMMITTER_NAME": "Alice",
            "GIT_COMMITTER_EMAIL": "alice@example.net",
            "STAGE_SUBLET": str(SUBLET),
            "STAGE_TESTS": str(ROOT / "tests"),
            "STAGE_COMMANDS": str(commands),
        }

    def _copy_checkout(self) -> None:
        shutil.copytree(ROOT / "examples", self.project / "examples")
        shutil.copy(ROOT / "agent.json", self.project)
        for file in (ROOT / "examples" / "sample-project").iterdir():
            if file.is_file():
                shutil.copy(file, self.project)
        for name, text in stages()["project"].items():
            (self.project / name).write_text(text)


@dataclass
class Stage:
    """Two machines, and what has been played there."""

    alice: Shell
    bob: Shell

    def prepare(self, scripts: Mapping[str, str], placeholders: Mapping[str, Any]) -> None:
        """Run what a page takes for granted, first what Alice does where Bob's needs it.

        Raises:
            AssertionError: it fails.
        """
        for who in [name for name in scripts if name in {"alice", "bob"}]:
            printed, failed = self._of(who).run(self._filled(scripts[who], placeholders))
            assert failed == [], f"{who} can't prepare: {failed}\n{printed}"

    def play(self, fence: Fence, told: Mapping[str, Any]) -> None:
        """Do with a fence what its note says: run it, compare it, or put it in force."""
        for before in told.get("at", ()):
            if fence.text.startswith(before["fence"]):
                self.prepare(before, told["placeholders"])
        if fence.is_run:
            self._run(fence, told["placeholders"])
        elif fence.noted("output of"):
            self._compare(fence, told["placeholders"])
        for name in fence.noted("in force as"):
            (self.alice.home / ".config/sublet" / name).write_text(fence.text)
            printed, failed = self.alice.run("sublet reload")
            assert failed == [], f"{fence}: {printed}"

    def _run(self, fence: Fence, placeholders: Mapping[str, Any]) -> None:
        """Run the commands of a fence, and compare what is shown of their output."""
        shell = self._of("bob" if "as bob" in fence.notes else "alice")
        for command, shown in steps(fence, by_lines=self._has_placeholder(fence.text, placeholders)):
            script = self._filled(command, placeholders)
            if ends := fence.noted("ends by Ctrl-C after"):
                printed = shell.run_until(script, ends[0])
            else:
                printed, failed = shell.run(script)
                wanted = fence.noted("fails")
                unwanted = [line for line in failed if not any(line.startswith(start) for start in wanted)]
                missed = [start for start in wanted if not any(line.startswith(start) for line in failed)]
                assert not unwanted, f"{fence}: failed: {unwanted}\n{printed}"
                assert not missed, f"{fence}: did not fail: {missed}\n{printed}"
            if shown is not None:
                assert shows(shown, printed), f"{fence}: the page shows\n{shown}\nand this was printed\n{printed}"

    def _compare(self, fence: Fence, placeholders: Mapping[str, Any]) -> None:
        """Compare a fence with what the command prints whose output it shows."""
        (command,) = fence.noted("output of")
        shell = self._of("bob" if "as bob" in fence.notes else "alice")
        printed, _ = shell.run(self._filled(command, placeholders))
        assert shows(fence.text, printed), f"{fence}: the page shows\n{fence.text}\nand this was printed\n{printed}"

    def _of(self, who: str) -> Shell:
        return self.bob if who == "bob" else self.alice

    def _has_placeholder(self, text: str, placeholders: Mapping[str, Any]) -> bool:
        code = "\n".join(re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines())
        return any(re.search(_word(name), code) for name in placeholders)

    def _filled(self, text: str, placeholders: Mapping[str, Any]) -> str:
        """Return a command with each placeholder filled in by what its own command prints."""
        for name, found in placeholders.items():
            if self._has_placeholder(text, {name: found}):
                printed, failed = self._of(found.get("who", "alice")).run(found["command"])
                assert failed == [], f"{name}: {printed}"
                assert printed.strip(), f"{name} is nothing"
                text = re.sub(_word(name), printed.strip(), text)
        return text


def _word(placeholder: str) -> str:
    """Return the pattern of a placeholder where it is no part of a longer word and no variable."""
    return rf"(?<![\w${{/-]){placeholder}(?![\w=])"


@contextmanager
def staged(base: Path) -> Iterator[Stage]:
    """Build a stage below ``base``; nothing of it is left afterwards."""
    with two_machines() as (left, right):
        shells: list[Shell] = []
        try:
            for name, machine in (("alice", left), ("bob", right)):
                shells.append(Shell(machine, base / name))
            yield Stage(*shells)
        finally:
            with ExitStack() as closing:
                for shell in shells:
                    closing.callback(shell.close)
                for shell in shells:
                    for home in {shell.home, *shell.home.glob(".sublet*")}:
                        named = "" if home == shell.home else f"SUBLET_HOME={home} "
                        shell.run(f"{named}sublet down")
