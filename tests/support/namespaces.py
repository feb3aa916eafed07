"""Machines for tests: network namespaces joined by a cable, so that daemons really are somewhere else.

A daemon enters one by ``nsenter`` and not by ``ip netns exec``: that would give it a mount namespace of its own too,
and the test could not see what it mounts.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces with addresses take root")


@dataclass(frozen=True)
class Machine:
    """One end of the cable."""

    namespace: str
    address: str
    cable: str

    @property
    def prefix(self) -> Sequence[str]:
        """What to put before a command to run it there."""
        return ("nsenter", f"--net=/run/netns/{self.namespace}", "--")

    def shielded(self, port: int) -> AbstractContextManager[None]:
        """Let nobody outside reach ``port`` meanwhile, as behind a firewall that drops what comes in.

        An attempt to connect is heard, but every answer to it is dropped, so the caller meets silence. Connections
        that go out from here have other ports of their own and work on.
        """
        return self._rule("from", self.address, "ipproto", "tcp", "sport", str(port), "blackhole")

    def without_route(self, address: str, port: int) -> AbstractContextManager[None]:
        """Let no connection go out from here to ``port`` of ``address`` meanwhile: whoever tries is told at once."""
        return self._rule("to", address, "ipproto", "tcp", "dport", str(port), "unreachable")

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """Let the cable be out meanwhile: what is sent to or from here is lost, and nobody is told."""
        self._ip("link", "set", self.cable, "down")
        try:
            yield
        finally:
            self._ip("link", "set", self.cable, "up")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let the sockets that this thread makes meanwhile belong to this machine."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.namespace}") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def listening(self) -> list[str]:
        """Return where programs listen here, as ``address:port``."""
        done = subprocess.run([*self.prefix, "ss", "-Hltn"], capture_output=True, text=True, check=True)
        return sorted(line.split()[3] for line in done.stdout.splitlines())

    @contextmanager
    def _rule(self, *rule: str) -> Iterator[None]:
        self._ip("rule", "add", *rule)
        try:
            yield
        finally:
            self._ip("rule", "del", *rule)

    def _ip(self, *arguments: str) -> None:
        _run("ip", "-n", self.namespace, *arguments)


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Two namespaces with nothing but a loopback of their own and a cable between them; gone afterwards."""
    tag = secrets.token_hex(3)
    left = Machine(f"sublet-{tag}-a", "10.203.0.1", f"sl{tag}a")
    right = Machine(f"sublet-{tag}-b", "10.203.0.2", f"sl{tag}b")
    made: list[str] = []
    try:
        for machine in (left, right):
            _run("ip", "netns", "add", machine.namespace)
            made.append(machine.namespace)
        _run(
            *("ip", "link", "add", left.cable, "netns", left.namespace),
            *("type", "veth", "peer", "name", right.cable, "netns", right.namespace),
        )
        for machine in (left, right):
            for arguments in (
                ("addr", "add", f"{machine.address}/24", "dev", machine.cable),
                ("link", "set", "lo", "up"),
                ("link", "set", machine.cable, "up"),
            ):
                _run("ip", "-n", machine.namespace, *arguments)
        yield left, right
    finally:
        for namespace in made:
            # The cable goes with its ends.
            _run("ip", "netns", "del", namespace)
        assert not [name for name in made if Path("/run/netns", name).exists()]


@contextmanager
def three_machines() -> Iterator[tuple[Machine, Machine, Machine]]:
    """Three namespaces in a row: the outer two have cables to the one in the middle alone, which forwards nothing.

    The one in the middle is at ``10.203.1.1`` for the first, which is its ``address``, and at ``10.203.2.1`` for the
    last one.
    """
    with machines_around(2) as (middle, (left, right)):
        yield left, middle, right


@contextmanager
def machines_around(count: int) -> Iterator[tuple[Machine, Sequence[Machine]]]:
    """One namespace in the middle, which forwards nothing, and others that have a cable to it alone.

    The one in the middle is at ``10.203.N.1`` for the Nth of them, counted from 1; for the first, that is its
    ``address``.
    """
    tag = secrets.token_hex(3)
    middle = Machine(f"sublet-{tag}-m", "10.203.1.1", f"sl{tag}m1")
    around = [Machine(f"sublet-{tag}-{at}", f"10.203.{at}.2", f"sl{tag}o{at}") for at in range(1, count + 1)]
    made: list[str] = []
    try:
        for machine in (middle, *around):
            _run("ip", "netns", "add", machine.namespace)
            made.append(machine.namespace)
            _run("ip", "-n", machine.namespace, "link", "set", "lo", "up")
        for at, outer in enumerate(around, 1):
            cable, address = f"sl{tag}m{at}", f"10.203.{at}.1"
            _run(
                *("ip", "link", "add", outer.cable, "netns", outer.namespace),
                *("type", "veth", "peer", "name", cable, "netns", middle.namespace),
            )
            for space, device, here in (
                (outer.namespace, outer.cable, outer.address),
                (middle.namespace, cable, address),
            ):
                _run("ip", "-n", space, "addr", "add", f"{here}/24", "dev", device)
                _run("ip", "-n", space, "link", "set", device, "up")
        yield middle, around
    finally:
        for namespace in made:
            # The cables go with their ends.
            _run("ip", "netns", "del", namespace)
        assert not [name for name in made if Path("/run/netns", name).exists()]


def network_of(prefix: Sequence[str]) -> str | None:
    """Return the path of the namespace to which a machine's prefix leads, empty for none; None for other prefixes."""
    match prefix:
        case ():
            return ""
        case ("nsenter", option, "--") if option.startswith("--net="):
            return option.removeprefix("--net=")
        case _:
            return None


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _run(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
