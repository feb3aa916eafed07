"""How long a link may be dead before a program in the mount is told, and how it comes back, beside plain sshfs.

    python benchmarks/links.py [--quick] [--bounds] [--json] [--markdown]

A delegation and ``sshfs -o reconnect,ServerAliveInterval=15,ServerAliveCountMax=3`` from OpenSSH's ``sshd`` lose their
links at the same moment, while a program in each mount looks at names that it has not seen. Once both know, or after
a bound, the links are healed. ``--bounds`` prints only the bounds that the product states, from its constants.
Exit status 1 where a goal is missed, or the work does not go on.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

import sftp
from _report import RELIABILITY, Row, add_options, markdown_table, show, write_part
from sublet.a2a_client.peer_http import STREAM_SILENCE_SECONDS
from sublet.daemon.lending.connection_watch import CONNECTION_GRACE_SECONDS
from sublet.daemon.working.data_link import (
    FIRST_RETRY_SECONDS,
    LAST_WORD_SECONDS,
    MAX_OUTAGE_SECONDS,
    MAX_RETRY_SECONDS,
    REDIAL_SECONDS,
)
from sublet.workspace.mount.mount import FLUSH_SECONDS
from sublet.workspace.serving.ssh_options import EXECUTOR_LOSS_SECONDS
from sublet.workspace.ssh.connection import LINK_LOSS_SECONDS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.daemons import SHELL_AGENT, Daemon, pair, two_daemons, wait_for
from support.leases import begin, conditions, finish, mount_of, processes_with, restart, view
from support.namespaces import Machine, two_machines

GOAL_SECONDS = 15.0
WATCH_SECONDS = 75.0
"""How long an error is waited for, and as long the return. OpenSSH gives up after 60 s with these options."""
PEER_OPTIONS = "reconnect,ServerAliveInterval=15,ServerAliveCountMax=3"
GATED = "touch started; until [ -e go ] 2>/dev/null; do sleep 0.2; done; echo done > result"
PORTS = {"a2a": 8642, "sftp": 8622}

LOOKER = """
import itertools, os, sys, time

def look(number):
    try:
        os.stat(f"{sys.argv[1]}/absent-{os.getpid()}-{number}")
    except FileNotFoundError:
        return True
    except OSError:
        return False

failed = 0
said = ""
for number in itertools.count():
    answered = look(number)
    failed += not answered
    now = "ready" if answered and not failed else "back" if answered else "error"
    if now != said:
        said = now
        print(now, time.monotonic(), failed, flush=True)
    if now == "back":
        break
    time.sleep(0.02)
"""
"""Looks at names that are not there until that fails and works again, and says when; each look asks the server."""


@dataclass
class Looker:
    """A program in a mount."""

    directory: Path

    def __post_init__(self) -> None:
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by close)
        self._process = subprocess.Popen([sys.executable, "-c", LOOKER, str(self.directory)], stdout=self._out)

    def said(self) -> dict[str, tuple[float, int]]:
        """Return when it first said what, on the monotonic clock, and how many calls had failed until then."""
        text = os.pread(self._out.fileno(), 65536, 0).decode()
        words = [line.split() for line in text.splitlines() if len(line.split()) == 3]
        return {word: (float(at), int(failed)) for word, at, failed in words}

    def close(self) -> None:
        """End it; its calls must be answered by now."""
        self._process.kill()
        self._process.wait(sftp.START_SECONDS)
        self._out.close()


@dataclass(frozen=True)
class Trial:
    """What came of one break: seconds until the error and from healing to the return; None for none in the bound."""

    error: float | None
    back: float | None
    failed: int


@dataclass(frozen=True)
class Peer:
    """Plain sshfs, or why there is none to compare with."""

    mount: Path | None
    config: Path
    why: str = ""

    def processes(self) -> list[int]:
        """Return the listener and all that it has started."""
        found = processes_with(str(self.config))
        for pid in found:
            found += [child for child in _children(pid) if child not in found]
        return found


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def main() -> int:
    """Measure, print, and tell by the status whether all goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only a lender that is killed and started again")
    parser.add_argument("--bounds", action="store_true", help="only print what the product states")
    add_options(parser)
    options = parser.parse_args()
    table = markdown_table(("what", "bound"), bounds())
    if options.bounds:
        print(table)
        return 0
    rows, wrong = [], []
    for measure in (killed,) if options.quick else (partition, stopped, killed, silent_executor):
        more, failures = measure()
        rows += more
        wrong += failures
    show("links", rows, options, RELIABILITY)
    if options.markdown:
        write_part("bounds", table, RELIABILITY)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong or any(row.met is False for row in rows) else 0


def bounds() -> list[tuple[str, str]]:
    """Return what the product states, from the constants that it obeys."""
    return [
        ("the executor notices a silent lender, and calls in the mount fail", f"{LINK_LOSS_SECONDS:g} s"),
        ("the lender's server notices a silent executor", f"{EXECUTOR_LOSS_SECONDS:g} s"),
        ("an executor without a connection to the files is shown as `degraded`", f"{CONNECTION_GRACE_SECONDS:g} s"),
        ("a stream of words without a sign of life is given up: `unresponsive`", f"{STREAM_SILENCE_SECONDS:g} s"),
        ("one try to reach the lender again", f"{REDIAL_SECONDS:g} s"),
        ("the pause between two tries", f"{FIRST_RETRY_SECONDS:g} s, growing to {MAX_RETRY_SECONDS:g} s"),
        ("the longest outage, if the lease lasts that long; then `MOUNT_FAILED`", f"{MAX_OUTAGE_SECONDS:g} s"),
        ("a lender that refuses the key is asked once more after", f"{LAST_WORD_SECONDS:g} s"),
        ("writing out at the end; of a lease that is over nothing is", f"{FLUSH_SECONDS:g} s"),
    ]


# the scenes


@contextlib.contextmanager
def peer_mount(base: Path, machines: Sequence[Machine] = ()) -> Iterator[Peer]:
    """Mount a directory by plain sshfs, from the first machine on the second, or all on this one."""
    home, root = base / "peer", base / "peer-root"
    config = home / "sshd_config"
    if shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin") is None:
        yield Peer(None, config, "no sshd here to compare with")
        return
    home.mkdir()
    root.mkdir()
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(home / "key")
    (home / "key").chmod(0o600)
    address = machines[0].address if machines else "127.0.0.1"
    there, here = (machine.prefix for machine in machines) if machines else ((), ())
    public = key.export_public_key().decode().strip()
    with (
        sftp.openssh_server(home, public, address, there) as (port, host_key),
        sftp.ssh_mount(
            *(home, "peer", port, getpass.getuser(), host_key, str(root)),
            address=address,
            options=PEER_OPTIONS,
            prefix=here,
        ) as mount,
    ):
        yield Peer(mount, config)


@contextlib.contextmanager
def one_machine() -> Iterator[tuple[Path, Daemon, Daemon, Peer]]:
    """Run a pair and the peer on loopback."""
    with tempfile.TemporaryDirectory(prefix="slt-") as name:
        base = Path(name)
        with two_daemons(base) as (lender, worker), peer_mount(base) as peer:
            yield base, lender, worker, peer


# what breaks


def partition() -> tuple[list[Row], list[str]]:
    """Pull the cable between two machines: what is sent is lost, and nobody is told."""
    name = "partition"
    if os.geteuid() != 0:
        return [Row(f"{name}: left out, it takes root for network namespaces", 0.0, "s")], []
    with tempfile.TemporaryDirectory(prefix="slt-") as directory, two_machines() as machines:
        base = Path(directory)
        lender, worker = (Daemon(base / n, prefix=m.prefix) for n, m in zip("ab", machines, strict=True))
        try:
            for daemon, machine in zip((lender, worker), machines, strict=True):
                where = {face: f"{machine.address}:{port}" for face, port in PORTS.items()}
                daemon.up(agent=SHELL_AGENT, **where)
            pair(lender, worker)
            with peer_mount(base, machines) as peer:
                cable = contextlib.ExitStack()
                return trial(
                    *(name, base, lender, worker, peer),
                    lambda: cable.enter_context(machines[0].unplugged()),
                    cable.close,
                    shown=True,
                )
        finally:
            for daemon in (lender, worker):
                daemon.down()


def stopped() -> tuple[list[Row], list[str]]:
    """Stop the lender's daemon, and the peer's server, as a machine that sleeps: connections stay and are silent."""
    with one_machine() as (base, lender, worker, peer):
        asleep: list[int] = []

        def stop() -> None:
            assert lender.pid is not None
            asleep.extend([lender.pid, *peer.processes()])
            for pid in asleep:
                os.kill(pid, signal.SIGSTOP)

        def go_on() -> None:
            for pid in asleep:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        return trial("lender stopped", base, lender, worker, peer, stop, go_on)


def killed() -> tuple[list[Row], list[str]]:
    """Kill the lender's daemon, and the peer's session, and start it again; the peer's listener stays."""
    with one_machine() as (base, lender, worker, peer):

        def kill() -> None:
            for pid in peer.processes()[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            lender.kill()

        return trial("lender killed", base, lender, worker, peer, kill, lambda: restart(lender), bound=5.0)


def silent_executor() -> tuple[list[Row], list[str]]:
    """Stop the worker's daemon and wait until the lender shows that it does not hear it."""
    with one_machine() as (base, lender, worker, _):
        lent = base / "lent"
        lent.mkdir()
        delegation = begin(lender, lent, GATED)
        wait_for((lent / "started").exists, 30, "the work")
        began = time.monotonic()
        worker.kill(signal.SIGSTOP)
        try:
            wait_for(lambda: _condition(lender, delegation) == "unresponsive", WATCH_SECONDS, "unresponsive")
            took = time.monotonic() - began
        finally:
            worker.kill(signal.SIGCONT)
        (lent / "go").touch()
        return [Row("executor stopped: shown as unresponsive after", took, "s")], _went_on(lender, delegation, lent)


def trial(
    name: str,
    base: Path,
    lender: Daemon,
    worker: Daemon,
    peer: Peer,
    cut: Callable[[], object],
    heal: Callable[[], object],
    *,
    shown: bool = False,
    bound: float = WATCH_SECONDS,
) -> tuple[list[Row], list[str]]:
    """Break both links, wait until both programs know, heal, and wait until both go on."""
    lent = base / "lent"
    lent.mkdir()
    delegation = begin(lender, lent, GATED)
    wait_for((lent / "started").exists, 30, "the work")
    mounts = [mount_of(worker, delegation) / "workspace", *([peer.mount] if peer.mount else [])]
    lookers = [Looker(mount) for mount in mounts]
    told: dict[str, float] = {}
    try:
        wait_for(lambda: all("ready" in looker.said() for looker in lookers), 20, "programs in the mounts")
        began = time.monotonic()
        cut()
        try:
            while time.monotonic() < began + bound and not all("error" in looker.said() for looker in lookers):
                if shown and (kind := _condition(lender, delegation)):
                    told.setdefault(kind, time.monotonic() - began)
                time.sleep(0.05)
        finally:
            heal()
        healed = time.monotonic()
        with contextlib.suppress(AssertionError):
            wait_for(lambda: all("back" in looker.said() for looker in lookers), WATCH_SECONDS, "their return")
        trials = [_trial(looker, began, healed) for looker in lookers]
    finally:
        for looker in lookers:
            looker.close()
    (lent / "go").touch()
    # A lender's daemon that was away itself has nothing to show, where the worker is back before it hears of it.
    wrong = _went_on(lender, delegation, lent, told=name != "lender killed")
    return [*_rows(name, trials, peer), *_shown(name, told)], [f"{name}: {line}" for line in wrong]


def _trial(looker: Looker, began: float, healed: float) -> Trial:
    said = looker.said()
    error, back = said.get("error"), said.get("back")
    return Trial(
        error[0] - began if error else None,
        max(0.0, back[0] - healed) if back else None,
        back[1] if back else 0,
    )


def _rows(name: str, trials: Sequence[Trial], peer: Peer) -> list[Row]:
    ours, theirs = trials[0], trials[1] if len(trials) > 1 else None
    rows = []
    for what, mine, other, goal in (
        ("error in the program after", ours.error, theirs and theirs.error, GOAL_SECONDS),
        ("files there again after healing", ours.back, theirs and theirs.back, None),
    ):
        value = WATCH_SECONDS if mine is None else mine
        rows.append(
            Row(
                f"{name}: {what}",
                value,
                "s",
                "none within the bound" if mine is None else f"{ours.failed} calls failed" if goal else "",
                goal="" if goal is None else f"≤ {goal:g} s",
                met=None if goal is None else mine is not None and mine <= goal,
                peer=peer.why or ("no failed call seen" if other is None else f"{other:.1f} s"),
                ratio=None if not other else value / other,
            )
        )
    return rows


def _shown(name: str, told: dict[str, float]) -> list[Row]:
    return [Row(f"{name}: the lender shows {kind} after", after, "s") for kind, after in told.items()]


def _condition(lender: Daemon, delegation: str) -> str:
    condition = view(lender, delegation).condition
    return condition.kind if condition else ""


def _went_on(lender: Daemon, delegation: str, lent: Path, *, told: bool = True) -> list[str]:
    """Return what is wrong with the end of the work, and where it was to be ``told``, with what was shown before."""
    end = finish(lender, delegation, 60)
    wrong = [] if str(end.state) == "completed" else [f"ended as {end.state}: {end.error}"]
    if not (lent / "result").exists():
        wrong.append("the work did not write its result")
    if told and not set(conditions(lender, delegation)) & {"degraded", "unresponsive"}:
        wrong.append("nothing was shown of the break")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
