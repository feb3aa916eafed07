"""The stage of the floods: a lender with an honest lease that works, and an attacker that holds a lease of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import asyncssh

from attacks.flood import Flood, Target
from attacks.run_flood import write_target
from sublet.protocol.messages import Done, Start
from support.daemons import SHELL_AGENT, Daemon, pair, two_daemons
from support.hostile_worker import HostileWorker, in_place_of
from support.leases import begin, mount_of, wait_state
from support.sftp_client import open_channel, string

TESTS: Final = Path(__file__).resolve().parent.parent / "tests"
BUSY: Final = "while :; do date > beat; read line < beat; ls > /dev/null; done"
LARGE: Final = 3_000
"""Names in the largest directory that is lent to the attacker."""
STAT: Final = 17
ATTRS: Final = 105
LOOKER: Final = """
import os, sys, time
with __import__("contextlib").suppress(OSError):
    os.nice(-10)
longest = 0.0
number = 0
while True:
    number += 1
    begun = time.monotonic()
    print("begins", begun, flush=True)
    try:
        os.stat(f"{sys.argv[1]}/absent-{os.getpid()}-{number}")
    except FileNotFoundError:
        pass
    except OSError as error:
        print("failed", error.errno, flush=True)
        break
    longest = max(longest, time.monotonic() - begun)
    print("longest", longest, flush=True)
    time.sleep(0.01)
"""
"""Looks at names that are not there in the honest mount and says what took longest; each look asks the lender."""
LAST_BYTES: Final = 4096
"""Of what the looker has said: more than its last two lines."""


class Looker:
    """The honest program; ``longest`` is the longest answer in seconds, infinite where the mount failed."""

    def __init__(self, mount: Path) -> None:
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by close)
        self._process = subprocess.Popen([sys.executable, "-c", LOOKER, str(mount)], stdout=self._out)

    @property
    def longest(self) -> float:
        """Return what took longest so far, a look that is not answered yet included."""
        size = os.fstat(self._out.fileno()).st_size
        said = os.pread(self._out.fileno(), LAST_BYTES, max(size - LAST_BYTES, 0)).decode()
        words = [line.split() for line in said.split("\n")[:-1] if len(line.split()) == 2]
        if not words or words[-1][0] == "failed":
            return float("inf")
        longest = max([float(value) for word, value in words if word == "longest"], default=0.0)
        waiting = time.monotonic() - float(words[-1][1]) if words[-1][0] == "begins" else 0.0
        return max(longest, waiting)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(10)
        self._out.close()


@dataclass
class Stage:
    """What a flood is played on.

    Args:
        lender: the daemon under attack.
        honest: where the honest lease is mounted.
        mallory: the attacker's daemon, in whose place ``worker`` answers.
        worker: the attacker, as far as leases are concerned.
        scratch: for files of the benchmark.
    """

    lender: Daemon
    honest: Path
    mallory: Daemon
    worker: HostileWorker
    scratch: Path
    leases: int = field(default=0)

    async def lend(self) -> tuple[str, Start]:
        """Lend the attacker a directory anew; return the delegation and the START that came."""
        self.leases += 1
        lent = self.scratch / f"lent-{self.leases}"
        await anyio.to_thread.run_sync(fill, lent)
        id_ = await anyio.to_thread.run_sync(partial(begin, self.lender, lent, "x", peer="mallory"))
        with anyio.fail_after(30):
            while id_ not in self.worker.starts:
                await anyio.sleep(0.02)
        return id_, self.worker.starts[id_]

    def target(self, start: Start) -> Target:
        """Return what the attacker has in its hands during a lease."""
        info = self.lender.info
        endpoint = start.mount.endpoint
        web_host, _, web_port = str(info["web"]).rpartition(":")
        return Target(
            a2a=str(info["a2a_url"]),
            web=(web_host.rpartition("/")[2], int(web_port.strip("/"))),
            sftp=(endpoint.host, endpoint.port),
            host_key=str(start.sublet.host_key),
            lease=endpoint.user,
            key=self.worker.keys[start.delegation_id],
            bus=None if not info.get("bus") else str(info["bus"]),
            peer_home=self.mallory.home,
            agent_socket=self.lender.home / "run" / "mcp.sock",
        )


def fill(lent: Path) -> None:
    """Make a directory with what is costly to work in: many names, a deep chain of directories, links that lead on."""
    (lent / "large").mkdir(parents=True)
    for number in range(LARGE):
        (lent / "large" / f"name-{number}").touch()
    deep = lent
    for _ in range(60):
        deep = deep / "deep"
        deep.mkdir()
    (lent / "link-0").write_text("the end\n")
    for number in range(1, 40):
        (lent / f"link-{number}").symlink_to(f"link-{number - 1}")


def resident(daemon: Daemon) -> int:
    """Return the bytes of memory that the daemon's process holds."""
    for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


@asynccontextmanager
async def staged(base: Path) -> AsyncIterator[Stage]:
    """Play a lender, an honest worker whose agent works all the time, and an attacker that was paired."""
    mallory = Daemon(base / "m")
    with two_daemons(base) as (lender, bob):
        mallory.up(agent=SHELL_AGENT)
        pair(lender, mallory, "mallory")
        honest, mount = await anyio.to_thread.run_sync(work_honestly, lender, bob, base / "work")
        async with in_place_of(mallory, lender, base) as worker:
            worker.deed = last
            yield Stage(lender, mount, mallory, worker, base)
            await anyio.to_thread.run_sync(lambda: lender.run("cancel", honest, check=None))


def work_honestly(lender: Daemon, bob: Daemon, work: Path) -> tuple[str, Path]:
    """Begin the honest lease; return the delegation and where its directory is mounted."""
    work.mkdir()
    id_ = begin(lender, work, BUSY, "--ttl", "2h")
    wait_state(lender, id_, "running")
    return id_, mount_of(bob, id_) / "workspace"


async def last(worker: HostileWorker, start: Start) -> Done:
    """Say nothing until the lease is over."""
    await anyio.sleep_forever()
    raise AssertionError("it woke up")


@contextmanager
def flooding(flood: Flood, target: Target, scratch: Path, seconds: float) -> Iterator[None]:
    """Have a process of its own run the flood."""
    file = scratch / "target.json"
    write_target(target, file)
    argv = [sys.executable, "-m", "attacks.run_flood", flood.name, str(file), str(seconds)]
    log = scratch / "flood.log"
    with log.open("wb") as failures:
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=failures)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"begins\n", log.read_text()
        yield
        assert process.poll() is None, f"the flood has ended by itself: {log.read_text()[-2000:]}"
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


class Asker:
    """An I/O of the attacker's that goes on over its lease, so that the end of access is seen."""

    def __init__(self, worker: HostileWorker, start: Start) -> None:
        self._worker = worker
        self._start = start
        self.answered = anyio.Event()
        self.refused = anyio.Event()

    async def run(self) -> None:
        """Ask again and again until an answer is a refusal, or none comes any more."""
        with contextlib.suppress(ConnectionError, OSError, asyncssh.Error):
            async with self._worker.connect(self._start) as connection:
                channel = await open_channel(connection)
                while (await channel.ask(STAT, string(b"/workspace"))).kind == ATTRS:
                    self.answered.set()
                    await anyio.sleep(0.005)
                self.refused.set()  # before the connection is closed, which takes time of its own
        self.refused.set()
