"""A relay: a real ``sublet relay`` in a process of its own, which can be killed and comes back where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.daemons import SUBLET

READY_SECONDS = 60


@dataclass
class Relay:
    """A relay of one directory, down at first.

    Args:
        directory: its own.
        listen: where it listens: ``tls/HOST:PORT``; a port of 0 is chosen once.
        hosts: addresses at which daemons call it.
        prefix: runs it somewhere else, such as in a network namespace.
        settings: of ``relay.json``, beside those that ``init`` writes.
    """

    directory: Path
    listen: str = "tls/127.0.0.1:0"
    hosts: Sequence[str] = ("127.0.0.1",)
    prefix: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None

    def init(self) -> Relay:
        """Make its directory."""
        hosts = [word for host in self.hosts for word in ("--host", host)]
        self.run("init", "--domain", "relay.test", "--dir", str(self.directory), *hosts)
        self.set(**self.settings)
        return self

    def set(self, **settings: Any) -> None:
        """Change ``relay.json``."""
        path = self.directory / "relay.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    def run(self, *arguments: str) -> Any:
        """Run ``sublet relay … --json`` and return what it printed."""
        done = subprocess.run(
            [str(SUBLET), "relay", *arguments, "--json"], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def up(self) -> None:
        """Start it, and return once daemons can call."""
        assert self._process is None
        with (self.directory / "log").open("a") as log:
            self._process = subprocess.Popen(
                [*self.prefix, str(SUBLET), "relay", "--dir", str(self.directory), "--listen", self.listen, "--json"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.directory / "log").read_text()[-4000:]
        self.told = json.loads(line)
        self.listen = self.told["listen"]

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            os.kill(self.told["pid"], signal.SIGKILL)
            self._close()

    def stop(self) -> int:
        """End it in order, and return its status."""
        assert self._process is not None
        os.kill(self.told["pid"], signal.SIGTERM)
        return self._close()

    def _close(self) -> int:
        assert self._process is not None
        with self._process as process:
            status = process.wait(30)
        self._process = None
        return status

    @property
    def authority(self) -> Path:
        """The file by which it is known."""
        return self.directory / "authority.pem"


@contextmanager
def relay(
    directory: Path,
    listen: str = "tls/127.0.0.1:0",
    hosts: Sequence[str] = ("127.0.0.1",),
    prefix: Sequence[str] = (),
    **settings: Any,
) -> Iterator[Relay]:
    """Run a relay; see ``Relay``."""
    made = Relay(directory, listen, hosts, prefix, settings).init()
    try:
        made.up()
        yield made
    finally:
        made.kill()
