"""The port of the bus: kept, and left to the bus to listen on."""

from __future__ import annotations

import socket

import pytest

from sublet.daemon.config import Bus, Listen
from sublet.daemon.rooms.bus_port import BusPort, endpoint
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.protocol.errors import SubletError
from support.rooms import ANY_BUS

HOST = "127.0.0.1"


def test_the_bus_listens_on_the_port_that_is_kept() -> None:
    port = BusPort(ANY_BUS, None)
    assert port.number is not None
    assert port.listen == (f"tcp/127.0.0.1:{port.number}",)
    network = ZenohNetwork(Endpoints(port.listen))
    try:
        with socket.create_connection((HOST, port.number)):
            pass
    finally:
        network.close()
        port.close()


def test_a_taken_default_gives_way_to_the_last_port_or_to_any_and_a_choice_does_not() -> None:
    with socket.create_server((HOST, 0)) as other:
        taken = other.getsockname()[1]
        port = BusPort(Bus(Listen(HOST, taken, chosen=False), tls=False), None)
        number = port.number
        assert number not in (None, taken)
        port.close()
        again = BusPort(Bus(Listen(HOST, taken, chosen=False), tls=False), number)
        assert again.number == number
        again.close()
        first = BusPort(Bus(Listen(HOST, number or 0, chosen=False), tls=False), None)
        second = BusPort(Bus(Listen(HOST, number or 0, chosen=False), tls=False), None)
        assert first.number == number != second.number, "neither listens yet"
        network = ZenohNetwork(Endpoints(first.listen))
        network.close()
        first.close()
        second.close()
        with pytest.raises(SubletError, match="can't be listened on"):
            BusPort(Bus(Listen(HOST, taken, chosen=True), tls=False), None)


def test_an_address_is_written_as_zenoh_does() -> None:
    assert endpoint("::1", 7447, tls=True) == "tls/[::1]:7447"
    assert endpoint("box.example", 1, tls=False) == "tcp/box.example:1"
