"""A thousand connections at once that say nothing, half a word, or never finish: at every door of two real daemons.

Whatever they say, others are served, no memory grows with them, and their descriptors are given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncssh
import pytest

from support.daemons import Daemon, two_daemons, wait_for
from support.leases import appear, begin, delegate, finish, view, wait_state

Pair = tuple[Daemon, Daemon]
COUNT = 1_000
MAX_GROWTH_BYTES = 96 << 20
PAIRING = b"POST /sublet/v1/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n{"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("doors")) as both:
        yield both


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    """Let this process open as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65_536, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors(daemon: Daemon) -> int:
    """Return how many files the daemon has open."""
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def resident(daemon: Daemon) -> int:
    """Return the bytes of memory that the daemon holds."""
    return int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def door(daemons: Pair, name: str) -> tuple[Daemon, socket.AddressFamily, object]:
    """Return the daemon behind a door, and where it is."""
    lender, worker = daemons
    daemon = worker if name in ("a2a", "reverse") else lender
    if name == "control":
        return daemon, socket.AF_UNIX, str(daemon.info["control_socket"])
    if name == "a2a":
        url = urlsplit(str(daemon.info["a2a_url"]))
        return daemon, socket.AF_INET, (url.hostname, url.port)
    host, _, port = str(daemon.info["sftp"]).rpartition(":")
    return daemon, socket.AF_INET, (host, int(port))


@contextmanager
def flood(family: socket.AddressFamily, address: object, words: bytes) -> Iterator[list[socket.socket]]:
    """Hold ``COUNT`` connections that have said no more than ``words``."""
    with ExitStack() as held:
        opened = []
        for _ in range(COUNT):
            one = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
            one.settimeout(20)
            one.connect(address)  # type: ignore[arg-type]  # either kind of address
            with contextlib.suppress(OSError):  # it has been made to make room already
                one.sendall(words)
            opened.append(one)
        yield opened


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a2a", PAIRING),
        ("sftp", b"SSH-2.0-slow\r\n\0\0\0\x0c"),
        ("reverse", b"SUBLET-REVERSE dlg_"),
        ("control", b"GET /v1/sta"),
    ],
)
def test_a_thousand_connections_that_never_finish(daemons: Pair, tmp_path: Path, name: str, words: bytes) -> None:
    lender, _ = daemons
    running = begin(lender, tmp_path, "while [ ! -e go ]; do sleep 0.05; done; cat go")
    wait_state(lender, running, "running")
    daemon, family, address = door(daemons, name)
    before, held = descriptors(daemon), resident(daemon)

    with flood(family, address, words):
        (tmp_path / "other").mkdir()
        appear(tmp_path / "go", "went on\n")
        assert str(finish(lender, running).state) == "completed"
        assert delegate(lender, tmp_path / "other", "echo served")["state"] == "completed"
        assert resident(daemon) - held < MAX_GROWTH_BYTES
        assert descriptors(daemon) - before < 600

    wait_for(lambda: descriptors(daemon) <= before, 30, "the descriptors")


def test_a_flood_of_wrong_keys_keeps_the_right_one_working(daemons: Pair, tmp_path: Path) -> None:
    lender, _ = daemons
    running = begin(lender, tmp_path, "while [ ! -e go ]; do sleep 0.05; done; cat go > came")
    wait_state(lender, running, "running")
    host, _, port = str(lender.info["sftp"]).rpartition(":")
    before = descriptors(lender)
    key = asyncssh.generate_private_key("ssh-ed25519")

    async def knock() -> bool:
        try:
            async with asyncssh.connect(
                host, int(port), username=running, client_keys=[key], known_hosts=None, config=None, agent_path=None
            ):
                return True
        except (OSError, asyncssh.Error):
            return False

    async def knock_on() -> list[bool]:
        return [let_in for _ in range(5) for let_in in await asyncio.gather(*(knock() for _ in range(40)))]

    assert not any(asyncio.run(knock_on()))
    assert str(view(lender, running).state) == "running"
    appear(tmp_path / "go", "still here\n")
    assert str(finish(lender, running).state) == "completed"
    assert (tmp_path / "came").read_text() == "still here\n"
    wait_for(lambda: descriptors(lender) <= before, 30, "the descriptors")
