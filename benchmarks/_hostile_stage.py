"""The stage of the floods: a lender with an honest lease that works, and an attacker that holds a lease of its own."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import asyncssh
import psutil

from attacks.flood import NO_OFFICE, Flood, OfficePlace, Target
from attacks.run_flood import write_target
from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.protocol.messages import Done, Progress, Start
from support.daemon_rooms import shared_room
from support.daemons import SHELL_AGENT, Daemon, pair, two_daemons, wait_for
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
PREFERRED: Final = -10
"""The priority of the honest worker's programs."""
LAST_BYTES: Final = 4096
"""Of what the looker has said: more than its last two lines."""


class Looker:
    """The honest program; ``longest`` is the longest answer in seconds, infinite where the mount failed."""

    def __init__(self, mount: Path) -> None:
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by close)
        self._process = subprocess.Popen([sys.executable, "-c", LOOKER, str(mount)], stdout=self._out)
        prefer(psutil.Process(self._process.pid))

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
        token: of a plain client of the lender's A2A server.
        content: the document of a text that the attacker may write into.
        office: an office of the lender of which the attacker has tokens.
    """

    lender: Daemon
    honest: Path
    mallory: Daemon
    worker: HostileWorker
    scratch: Path
    token: str = ""
    content: str = ""
    office: OfficePlace = NO_OFFICE
    leases: int = field(default=0)

    async def lend(self, transport: str = "sshfs") -> tuple[str, Start]:
        """Lend the attacker a directory anew; return the delegation and the START that came."""
        self.leases += 1
        lent = self.scratch / f"lent-{self.leases}"
        await anyio.to_thread.run_sync(fill, lent)
        if transport == "git":
            await anyio.to_thread.run_sync(commit, lent)
        options = () if transport == "sshfs" else ("--transport", transport)
        lending = partial(begin, self.lender, lent, "x", *options, peer="mallory")
        id_ = await anyio.to_thread.run_sync(lending)
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
            token=self.token,
            content=self.content,
            office=self.office,
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


def commit(lent: Path) -> None:
    """Make a directory a repository with all that is in it."""
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        subprocess.run(["git", *who, *words], cwd=lent, check=True, capture_output=True)


def resident(daemon: Daemon) -> int:
    """Return the bytes of memory that the daemon's process holds."""
    assert daemon.pid is not None
    return memory_of(daemon.pid)


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
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
        content = await anyio.to_thread.run_sync(shared_text, lender, mallory)
        token = str(lender.json("token", "create", "mallory")["token"])
        office = await anyio.to_thread.run_sync(an_office, lender)
        prefer(psutil.Process(bob.pid))
        honest, mount = await anyio.to_thread.run_sync(work_honestly, lender, bob, base / "work")
        async with in_place_of(mallory, lender, base, Answering(mallory.home / "answers")) as worker:
            worker.deed = last
            yield Stage(lender, mount, mallory, worker, base, token, content, office)
            await anyio.to_thread.run_sync(lambda: lender.run("cancel", honest, check=None))


def an_office(lender: Daemon) -> OfficePlace:
    """Open an office with tokens for the attacker."""
    office_id = lender.json("office", "create", "desk")["office_id"]
    made = {
        role: lender.json("office", "token", "desk", "--role", role, "--name", name)
        for role, name in (("agent", "mallory"), ("computer", "machine"))
    }
    return OfficePlace(made["agent"]["url"], office_id, made["agent"]["token"], made["computer"]["token"])


def shared_text(lender: Daemon, mallory: Daemon) -> str:
    """Make a room with a text into which the attacker may write; return the text's document."""
    room = shared_room(lender, mallory)
    ref = lender.json("send", room, "a text")["ref_id"]
    lender.run("text", "share", room, ref, "--all")
    lender.run("text", "edit", room, ref, "a text of many")
    wait_for(lambda: any(one["ref_id"] == ref for one in mallory.json("read", room)), 60, "the text")
    with contextlib.closing(sqlite3.connect(f"file:{lender.home}/state/messaging.db?mode=ro", uri=True)) as database:
        asked = "SELECT doc_id FROM documents WHERE kind = 'content' AND room_id = ?"
        return str(database.execute(asked, (room,)).fetchone()[0])


class Answering(HostileWorker):
    """Answers as a flood asks for in a file, as long as the process that wrote it is there."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    async def run(self, message: Start, peer: KnownPeer, *, source_host: str) -> AsyncGenerator[Progress | Done, None]:
        """``HostileWorker.run``, with progress that tells nothing, without end."""
        self.starts[message.delegation_id] = message
        yield Progress(delegation_id=message.delegation_id, phase="running")
        while True:
            kind = self._asked()
            if kind is None:
                await anyio.sleep(0.05)
                continue
            for _ in range(20):
                text = "x" * 60_000 if kind == "long" else "y"
                yield Progress(delegation_id=message.delegation_id, phase="running", stream="stdout", text=text)
            await anyio.sleep(0)

    def _asked(self) -> str | None:
        with contextlib.suppress(OSError, ValueError):
            process, kind = self._file.read_text(encoding="utf-8").split()
            os.kill(int(process), 0)
            return kind
        return None


def work_honestly(lender: Daemon, bob: Daemon, work: Path) -> tuple[str, Path]:
    """Begin the honest lease; return the delegation and where its directory is mounted."""
    work.mkdir()
    id_ = begin(lender, work, BUSY, "--ttl", "2h")
    wait_state(lender, id_, "running")
    return id_, mount_of(bob, id_) / "workspace"


def prefer(process: psutil.Process) -> None:
    """Let what stands for another machine wait for no processor, where we may: all threads, and what they start."""
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(OSError):
            # The kernel shares processors out between sessions first, where it is told to.
            Path(f"/proc/{one.pid}/autogroup").write_text(str(PREFERRED))
        for thread in one.threads():
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread.id, PREFERRED)


def keep_to_one_processor(pid: int) -> None:
    """Leave the other processors of this machine to the lender: an attacker would have a machine of its own."""
    processors = os.sched_getaffinity(pid)
    if len(processors) > 1:
        os.sched_setaffinity(pid, {min(processors)})


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
        keep_to_one_processor(process.pid)
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
                if self._start.mount.transport != "sshfs":
                    self.answered.set()
                    await connection.wait_closed()  # such a lease has nothing to ask for again and again
                    self.refused.set()
                    return
                channel = await open_channel(connection)
                while (await channel.ask(STAT, string(b"/workspace"))).kind == ATTRS:
                    self.answered.set()
                    await anyio.sleep(0.005)
                self.refused.set()  # before the connection is closed, which takes time of its own
        self.refused.set()
