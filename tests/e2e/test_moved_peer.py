"""A daemon that was started again on other ports, of A2A and of its bus, is found again by those paired with it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.daemon_rooms import Commands, bodies, shared_room
from support.daemons import two_daemons, wait_for
from support.typed_commands import Typing

pytestmark = pytest.mark.timeout(400)
WAIT_SECONDS = 120


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Let another program listen at a port meanwhile, which hangs up on everybody."""

    def hang_up() -> None:
        with suppress(OSError):
            while True:
                server.accept()[0].close()

    try:
        server = socket.create_server(("127.0.0.1", port))
    except OSError:  # somebody else on this machine was first, which will do
        yield
        return
    with server:
        thread = threading.Thread(target=hang_up)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def ports(who: Commands) -> tuple[int, int]:
    """Return where A2A and the bus are."""
    status = who.json("status")
    a2a = urlsplit(status["a2a_url"]).port
    assert a2a is not None
    return a2a, int(status["bus"].rpartition(":")[2])


def hear(who: Commands, room: str, body: str) -> None:
    wait_for(lambda: body in bodies(who, room), WAIT_SECONDS, f"{body!r}")


def test_a_peer_is_found_again_when_both_its_ports_are_others(tmp_path: Path) -> None:
    with two_daemons(tmp_path, agent=None) as daemons, ExitStack() as stack:
        alice, bob = map(Typing, daemons)
        room = shared_room(alice, bob)
        # Of two only one calls the other's bus, so each of them moves once.
        for moving, other in ((bob, alice), (alice, bob)):
            name, before = moving.daemon.home.name, ports(moving)
            moving.daemon.run("down")
            moving.daemon.wait_gone()
            for port in before:
                stack.enter_context(taken(port))
            other.json("send", room, f"while {name} is away")
            moving.daemon.up()
            assert not set(before) & set(ports(moving))
            hear(moving, room, f"while {name} is away")
            moving.json("send", room, f"{name} is back")
            hear(other, room, f"{name} is back")
            (known,) = other.json("peers", "list")["peers"]
            assert urlsplit(known["a2a_url"]).port == ports(moving)[0]
