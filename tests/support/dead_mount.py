"""A FUSE file system that never answers: whoever touches it is blocked until it ends."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from sublet.workspace.mount.table import is_mounted

_SECONDS = 10.0


@contextlib.contextmanager
def dead_mount(point: Path) -> Iterator[None]:
    """Mount ``sshfs`` on ``point``, with a server that says its version and then nothing any more."""
    ours, theirs = socket.socketpair()
    ours.settimeout(_SECONDS)
    argv = ["sshfs", "-f", "-o", "passive", "nobody:/", str(point)]
    process = subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL)
    theirs.close()
    try:
        assert ours.recv(4096)
        ours.sendall(struct.pack(">IBI", 5, 2, 3))
        until = time.monotonic() + _SECONDS
        while not is_mounted(point) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        assert is_mounted(point)
        yield
    finally:
        process.kill()
        process.wait()
        ours.close()
        if is_mounted(point):
            subprocess.run(["fusermount3", "-u", "-z", "--", str(point)], check=True, timeout=_SECONDS)
