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
    """Carry until either side ends, or takes no more."""
    os.chdir(os.path.dirname(os.path.abspath(__file__)))  # the whole path may be too long for a socket's name
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.connect(SOCKET)
        own = daemon.fileno()
        while True:
            for ready in select.select([0, own], [], [])[0]:
                data = _read(ready)
                if not data:
                    return
                if not _write(own if ready == 0 else 1, data):
                    return


def _read(descriptor: int) -> bytes:
    """Return what there is; nothing where the other side has closed or is gone."""
    try:
        return os.read(descriptor, CHUNK)
    except ConnectionError:
        return b""


def _write(descriptor: int, data: bytes) -> bool:
    """Write all of ``data``; False where nobody takes it any more."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except ConnectionError:
        return False
    return True


if __name__ == "__main__":
    main()
