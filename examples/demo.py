#!/usr/bin/env python3
"""The main job, on real parts: Alice lends Bob a project with a failing test, and Bob's agent repairs it.

Two daemons with homes of their own run on loopback and are paired as two people would pair them. Everything is done
through the command line, so each line that is shown can be typed. At the end both daemons stop, and it is made sure
that no process, mount or file is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SUBLET = Path(sys.executable).with_name("sublet")
FANCY = sys.stdout.isatty() and "NO_COLOR" not in os.environ
MAX_SECONDS = 60
SECRET = ".env"


class Person:
    """Somebody with a daemon of their own."""

    def __init__(self, name: str, scratch: Path) -> None:
        self.name = name
        self.home = scratch / name
        self.env = {**os.environ, "SUBLET_HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *argv: str, cwd: Path, shown: str | None = None, may_fail: bool = False) -> None:
        """Run a command before everybody's eyes."""
        prompt(self.name, shown or " ".join(argv))
        done = subprocess.run(argv, cwd=cwd, env=self.env, timeout=MAX_SECONDS, check=False, stderr=subprocess.STDOUT)
        if done.returncode and not may_fail:
            raise SystemExit(f"demo: {self.name}'s command failed with status {done.returncode}")

    def sublet(self, *argv: str, cwd: Path, shown: str | None = None) -> None:
        """Run ``sublet`` before everybody's eyes."""
        self.run(str(SUBLET), *argv, cwd=cwd, shown=f"sublet {shown or ' '.join(argv)}")

    def ask(self, *argv: str) -> str:
        """Run ``sublet`` and return what it prints on stdout."""
        prompt(self.name, f"sublet {' '.join(argv)}")
        done = subprocess.run([SUBLET, *argv], env=self.env, timeout=MAX_SECONDS, check=True, capture_output=True)
        print(done.stdout.decode(), end="")
        return done.stdout.decode().strip()

    def stop(self) -> None:
        """Stop the daemon, whatever happened before."""
        subprocess.run([SUBLET, "down"], env=self.env, timeout=MAX_SECONDS, check=False, stdout=subprocess.DEVNULL)


def main() -> int:
    if not SUBLET.exists():
        print("demo: run `make demo`, which sets up what this needs", file=sys.stderr)
        return 2
    scratch = Path(tempfile.mkdtemp(prefix="slt-"))
    alice, bob = Person("alice", scratch), Person("bob", scratch)
    done = False
    try:
        play(alice, bob, scratch)
        done = True
    finally:
        alice.stop()
        bob.stop()
        check = [sys.executable, str(ROOT / "scripts" / "check-clean"), str(scratch)]
        clean = subprocess.run(check, check=False).returncode == 0
        if not done:
            print(f"demo: it did not work; the logs are in {scratch}/*/state/daemon.log", file=sys.stderr)
    if not clean:
        return 1
    shutil.rmtree(scratch)
    step("Both daemons are stopped, and no process, mount or file of this demo is left.")
    return 0


def play(alice: Person, bob: Person, scratch: Path) -> None:
    """Do it, step by step."""
    project = scratch / "sample-project"
    shutil.copytree(HERE / "sample-project", project, ignore=shutil.ignore_patterns("__pycache__"))
    (project / SECRET).write_text("API_KEY=this-is-not-for-bob\n")

    step("Alice has a project with a failing test, and a secret in it.")
    alice.run("python3", "-m", "unittest", cwd=project, may_fail=True)
    alice.run("ls", "-A", cwd=project)

    step("Bob offers an agent. In this demo it is a shell that runs what it is asked; it could be `claude -p`.")
    agent = str(ROOT / "agent.json")
    ports = ("--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0")
    bob.sublet("up", "--detach", "--agent", agent, *ports, cwd=scratch, shown="up --detach --agent agent.json")

    step("Alice starts hers, and they pair: both daemons pin each other's key.")
    alice.sublet("up", "--detach", *ports, cwd=scratch, shown="up --detach")
    link = bob.ask("pair")
    alice.sublet("peers", "add", link, "--name", "bob", cwd=scratch, shown="peers add LINK --name bob")

    step("Alice lends Bob the project for five minutes. It is mounted on his side, and his agent works in it.")
    prompt("alice", "sublet delegate . --to bob --ttl 5m - < repair.sh")
    with (HERE / "repair.sh").open() as task:
        done = subprocess.run(
            [SUBLET, "delegate", ".", "--to", "bob", "--ttl", "5m", "-"],
            cwd=project,
            env=alice.env,
            stdin=task,
            # on a terminal the work is shown live; elsewhere its lines would only repeat what the summary says
            stderr=None if FANCY else subprocess.PIPE,
            timeout=MAX_SECONDS,
            check=False,
        )
    if done.returncode:
        sys.stderr.buffer.write(done.stderr or b"")
        raise SystemExit(f"demo: the delegation ended with status {done.returncode}")

    step("What did he change? The audit has every line.")
    alice.sublet("diff", "last", cwd=project)

    step("And it works: these are Alice's own files.")
    alice.run("python3", "-m", "unittest", cwd=project)


def step(text: str) -> None:
    """Begin a step."""
    print(f"\n\x1b[1m{text}\x1b[0m" if FANCY else f"\n== {text}", flush=True)


def prompt(name: str, command: str) -> None:
    """Show who types what."""
    print(f"\x1b[36m{name}$\x1b[0m {command}" if FANCY else f"{name}$ {command}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
