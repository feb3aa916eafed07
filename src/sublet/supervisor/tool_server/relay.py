"""Carries an agent program's MCP messages between its pipes and the daemon's socket beside this file.

A copy of this file lies in the private directory of each job, and the agent program starts it inside the sandbox, where
nothing of ours is: so it needs the standard library alone. ``python -I -S relay.py``.
"""

from __future__ import annotations

import os
import select
import socket

SOCKET = "tools.sock"
CHUNK = 65_536


def main() -> None:
    """Carry until either side ends."""
    os.chdir(os.path.dirname(os.path.abspath(__file__)))  # the whole path may be too long for a socket's name
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.connect(SOCKET)
        own = daemon.fileno()
        while True:
            for ready in select.select([0, own], [], [])[0]:
                data = os.read(ready, CHUNK)
                if not data:
                    return
                _write(own if ready == 0 else 1, data)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
