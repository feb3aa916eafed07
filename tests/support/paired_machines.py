"""Two paired daemons on machines of their own: Ann is called by nobody, Bob listens for other machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.daemons import SHELL_AGENT, Daemon, pair
from support.namespaces import Machine, two_machines

PORT: Final = 8642
"""Where whoever is at Bob's address offers an agent."""


@dataclass(frozen=True)
class PairedMachines:
    """Ann is on the left machine, Bob on the right one."""

    ann: Daemon
    bob: Daemon
    left: Machine
    right: Machine


def start(daemon: Daemon, machine: Machine) -> Daemon:
    """Start an executor at the one address that everybody knows."""
    return daemon.up(a2a=f"{machine.address}:{PORT}", sftp=f"{machine.address}:0", agent=SHELL_AGENT)


@contextmanager
def paired_machines(base: Path) -> Iterator[PairedMachines]:
    """Run both, with homes in ``base``."""
    with two_machines() as (left, right):
        ann, bob = Daemon(base / "ann", prefix=left.prefix), Daemon(base / "bob", prefix=right.prefix)
        try:
            ann.up()
            start(bob, right)
            pair(ann, bob)
            yield PairedMachines(ann, bob, left, right)
        finally:
            for daemon in (ann, bob):
                daemon.down()
