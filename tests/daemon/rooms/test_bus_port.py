"""The port of the bus: listened on from the start on, for the bus that comes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sublet.daemon.config.daemon_config import Bus, Listen
from sublet.daemon.rooms.bus_port import BusPort, endpoint
from sublet.messaging.links.keys import LinkKeys
from sublet.messaging.links.links import Links
from sublet.protocol.errors import SubletError
from support.rooms import ANY_BUS

HOST = "127.0.0.1"


def test_the_bus_listens_on_the_port_that_is_kept(tmp_path: Path) -> None:
    port = BusPort(ANY_BUS, None)
    assert port.number is not None
    assert port.shown == f"tls/127.0.0.1:{port.number}"
    links = Links(LinkKeys(tmp_path / "keys", Ed25519PrivateKey.generate()), tmp_path / "bus", port.listener)
    try:
        with socket.create_connection((HOST, port.number)):
            pass
    finally:
        links.close()
        port.close()


def test_a_taken_default_gives_way_to_the_last_port_or_to_any_and_a_choice_does_not() -> None:
    with socket.create_server((HOST, 0)) as other:
        taken = other.getsockname()[1]
        port = BusPort(Bus(Listen(HOST, taken, chosen=False)), None)
        number = port.number
        assert number not in (None, taken)
        port.close()
        again = BusPort(Bus(Listen(HOST, taken, chosen=False)), number)
        assert again.number == number
        again.close()
        first = BusPort(Bus(Listen(HOST, number or 0, chosen=False)), None)
        second = BusPort(Bus(Listen(HOST, number or 0, chosen=False)), None)
        assert first.number == number != second.number, "nobody's rooms run yet"
        # A daemon that comes back meanwhile has known that port as its own, and can't have it before it is free.
        third = BusPort(ANY_BUS, number)
        assert third.number not in (None, number)
        third.close()
        first.close()
        second.close()
        with pytest.raises(SubletError, match="can't be listened on"):
            BusPort(Bus(Listen(HOST, taken, chosen=True)), None)


def test_an_address_is_written_as_zenoh_does() -> None:
    assert endpoint("::1", 7447) == "tls/[::1]:7447"
    assert endpoint("box.example", 1) == "tls/box.example:1"
