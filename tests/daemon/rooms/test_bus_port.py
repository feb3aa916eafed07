"""The port of the bus: kept, and left to the bus to listen on."""

from __future__ import annotations

import socket

from sublet.daemon.rooms.bus_port import HOST, BusPort, endpoint
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork


def test_the_bus_listens_on_the_port_that_is_kept() -> None:
    port = BusPort(None)
    assert port.number is not None
    network = ZenohNetwork(Endpoints((endpoint(port.number),)))
    try:
        with socket.create_connection((HOST, port.number)):
            pass
    finally:
        network.close()
        port.close()


def test_the_last_port_is_taken_again_and_another_where_somebody_has_it() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen(1)
        taken = other.getsockname()[1]
        port = BusPort(taken)
        number = port.number
        assert number not in (None, taken)
        port.close()
    again = BusPort(number)
    assert again.number == number
    again.close()
