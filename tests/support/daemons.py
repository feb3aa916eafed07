"""Real daemons for end-to-end tests, driven by the command line as a user drives them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.command_server import command_server
from support.namespaces import network_of
from support.sites import is_forked_alike

SUBLET = Path(sys.executable).with_name("sublet")
COMMAND_SECONDS = 60
POLL_SECONDS = 0.05
PAUSES = 2.0
"""How much longer the pause between two looks is than a look."""
SHELL_AGENT = {"id": "shell", "role": "executor", "provider": {"type": "command", "argv": ["sh", "-s"]}}


class CommandFailed(AssertionError):
    """A command ended with another status than the test allows."""


@dataclass
class Daemon:
    """One daemon with a home of its own.

    ``prefix`` runs every command of it somewhere else, such as in a network namespace.
    """

    home: Path
    prefix: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    def run(
        self, *arguments: str, check: Sequence[int] | None = (0,), stdin: str = "", timeout: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run ``sublet`` with ``arguments`` and return what it printed; any status in ``check`` will do."""
        argv = [*self.prefix, str(SUBLET), *arguments]
        network = network_of(self.prefix)
        if network is None or not is_forked_alike(self.environ):  # elsewhere, or another version
            done = subprocess.run(
                argv, env=self.environment(), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
            )
        else:
            argv = argv[len(self.prefix) :]
            done = command_server().run(argv, env=self.environment(), stdin=stdin, timeout=timeout, network=network)
        if check is not None and done.returncode not in check:
            raise CommandFailed(
                f"sublet {' '.join(arguments)}: status {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.log()}"
            )
        return done

    def json(self, *arguments: str, check: Sequence[int] | None = (0,), timeout: float = COMMAND_SECONDS) -> Any:
        """Run ``sublet … --json`` and return the one object that it printed."""
        return json.loads(self.run(*arguments, "--json", check=check, timeout=timeout).stdout)

    def environment(self) -> dict[str, str]:
        """Return the environment in which this daemon's commands run."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, **self.environ, "SUBLET_HOME": str(self.home)}

    def up(
        self,
        *options: str,
        agent: Mapping[str, Any] | None = None,
        a2a: str = "127.0.0.1:0",
        sftp: str | None = "127.0.0.1:0",
    ) -> Daemon:
        """Start it, with ``agent`` as its agent.json where one is given, and ``sftp`` None for where A2A is."""
        if agent is not None:
            file = self.home.with_name(f"{self.home.name}-agent.json")
            file.write_text(json.dumps(agent))
            options = (*options, "--agent", str(file))
        served = () if sftp is None else ("--sftp", sftp)
        self.info = self.json("up", "--detach", "--a2a", a2a, *served, "--web", "0", *options)
        return self

    def down(self) -> None:
        """Stop it, however it is."""
        self.run("down", check=None)
        if self.pid is not None and self.alive():
            self.kill()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the daemon process and, where it kills, wait until it is gone."""
        assert self.pid is not None
        os.kill(self.pid, number)
        if number is signal.SIGKILL:
            self.wait_gone()

    def wait_gone(self, seconds: float = 10) -> None:
        """Wait until the daemon process has ended."""
        wait_for(lambda: not self.alive(), seconds, "the daemon's end")

    def alive(self) -> bool:
        """Tell whether the daemon process runs."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state != "Z"

    @property
    def pid(self) -> int | None:
        """Process id, once it was started."""
        pid = self.info.get("pid")
        return pid if isinstance(pid, int) else None

    @property
    def mounts(self) -> list[str]:
        """What is mounted below its home."""
        return [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(self.home) in line]

    def log(self) -> str:
        """Return the end of its log."""
        found = [path for pattern in ("*.log", "*/*.log", "*/*/*.log") for path in self.home.glob(pattern)]
        return "\n".join(path.read_text()[-4000:] for path in found if path.is_file())


def pair(delegator: Daemon, executor: Daemon, name: str = "bob") -> None:
    """Pair two running daemons by the real flow."""
    link = executor.json("pair")["link"]
    delegator.json("peers", "add", link, "--name", name)


def wait_for(condition: Any, seconds: float = 20, what: str = "a condition") -> Any:
    """Poll ``condition`` until it is true and return what it returned.

    Who asks by a command is to take no processor from what it waits for: it pauses longer than it asks.
    """
    deadline = time.monotonic() + seconds
    while (began := time.monotonic()) < deadline:
        if found := condition():
            return found
        time.sleep(max(POLL_SECONDS, PAUSES * (time.monotonic() - began)))
    raise AssertionError(f"{what} did not come within {seconds} s")


@contextmanager
def two_daemons(
    base: Path,
    *,
    agent: Mapping[str, Any] | None = SHELL_AGENT,
    policy: Mapping[str, object] | None = None,
    executor_policy: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    a2a: str = "127.0.0.1:0",
) -> Iterator[tuple[Daemon, Daemon]]:
    """Run a delegator and an executor, paired; nothing of them is left afterwards.

    Args:
        base: where their homes are.
        agent: what the executor offers.
        policy: the delegator's ``policy.json``.
        executor_policy: the executor's.
        environ: what both have in their environment besides.
        options: of the executor's ``sublet up``.
        a2a: where the executor listens.
    """
    delegator, executor = (Daemon(base / name, environ=environ or {}) for name in "ab")
    for daemon, document in ((delegator, policy), (executor, executor_policy)):
        if document is not None:
            config = daemon.home / "config"
            config.mkdir(mode=0o700, parents=True)
            (config / "policy.json").write_text(json.dumps(document))
    try:
        delegator.up()
        executor.up(*options, agent=agent, a2a=a2a)
        pair(delegator, executor)
        yield delegator, executor
    finally:
        for daemon in (delegator, executor):
            daemon.down()
        assert executor.mounts == []
