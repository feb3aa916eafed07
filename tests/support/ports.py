"""Ports that a test may listen on later: nobody else's connection takes one meanwhile."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

_LEAST = 10_000
_OF_THE_SYSTEM = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
"""From here on the system gives ports to whoever connects."""
_numbers = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """Return a port of the loopback that nobody listens on, below those that outgoing connections get."""
    for number in _numbers:
        port = _LEAST + number % (_OF_THE_SYSTEM - _LEAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("the count has no end")
