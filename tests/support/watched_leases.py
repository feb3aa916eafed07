"""A delegator, and an executor behind a proxy that holds messages back: leases that a test watches in every state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.daemons import SHELL_AGENT, Daemon, two_daemons, wait_for
from support.held_proxy import HeldProxy
from support.leases import begin, mount_of, processes_with, states

SLOTS = 2
START = b'"START"'
TERMINAL = {"completed", "error", "cancelled", "expired"}
WORK = "touch started; sleep {}"

Pair = tuple[Daemon, Daemon]


@contextmanager
def daemons_behind(proxy: HeldProxy, base: Path) -> Iterator[Pair]:
    """Run a pair whose executor has ``SLOTS`` slots and is reached through ``proxy``."""
    limits = {"version": 1, "limits": {"slots": SLOTS}}
    options = (f"--public-url={proxy.url}",)
    with two_daemons(base, executor_policy=limits, options=options, a2a=f"127.0.0.1:{proxy.target}") as both:
        yield both


def come_back(executor: Daemon, proxy: HeldProxy) -> None:
    """Start the killed executor again, where it was."""
    executor.up(f"--public-url={proxy.url}", agent=SHELL_AGENT, a2a=f"127.0.0.1:{proxy.target}")


def running(daemons: Pair, directory: Path, mark: str, *options: str) -> str:
    """Begin a delegation and return its id once its worker works."""
    directory.mkdir(exist_ok=True)
    (directory / "started").unlink(missing_ok=True)
    id_ = begin(daemons[0], directory, WORK.format(mark), *options)
    wait_for((directory / "started").exists, 40, "the work")
    return id_


def assert_gone(daemons: Pair, mark: str, *ids: str) -> None:
    """Assert that the worker has ended and nothing of its leases is left on the executor."""
    _, executor = daemons
    wait_for(lambda: not processes_with(mark), 20, "the end of the worker")
    wait_for(lambda: executor.mounts == [], 20, "the unmounting")
    wait_for(lambda: not any(mount_of(executor, id_).exists() for id_ in ids), 20, "the end of the mount points")


def ends(daemon: Daemon, id_: str) -> list[str]:
    """Return the terminal states that a delegation went through: there must be one."""
    return [state for state in states(daemon, id_) if state in TERMINAL]
