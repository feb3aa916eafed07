"""Loads once for all workers of a run what commands and daemons need, since that takes as long as hundreds of them do.

The process that gives out tests starts a command server and a daemon server that listen. Each worker that connects, and
each program of a test that does, gets a fork of its own, which then serves it as one that it had started itself would.
Both end with the one that gives out tests, and a fork with the one that it serves.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

SHARED: Final = "SUBLET_TEST_SHARED_SERVERS"
"""The environment variable that names the directory of their sockets."""
COMMANDS, DAEMONS = "commands", "daemons"
LISTENING: Final = "--listening"
END_SECONDS: Final = 5.0
GROUPS: Final = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))
"""Where ``support.costs`` makes control groups: in version 1, and in version 2."""
_CREDENTIALS: Final = struct.Struct("3i")


class SharedServers:
    """Both servers, for as long as the process that gives out tests runs."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="srv-")
        self._processes = [
            self._started(program, name)
            for program, name in (("daemon_server.py", DAEMONS), ("command_server.py", COMMANDS))
        ]
        os.environ[SHARED] = self._place.name

    def close(self) -> None:
        """Let them end."""
        del os.environ[SHARED]
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._place.cleanup()

    def _started(self, program: str, name: str) -> subprocess.Popen[bytes]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(Path(self._place.name, name)))
            listener.listen()  # who connects from here on waits until all is loaded
            fd = listener.fileno()
            # Neither is to find modules beside itself.
            argv = [sys.executable, "-P", str(Path(__file__).with_name(program)), LISTENING, str(fd), self._place.name]
            return subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(fd,), start_new_session=True
            )


def connected(place: str, name: str) -> socket.socket:
    """Return a connection to a server of its own."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.connect(str(Path(place, name)))
    return channel


def asker(listener: socket.socket) -> socket.socket:
    """Return the connection of somebody who asks, in a fork for each; end this process when its standard input does."""
    watch = select.poll()
    watch.register(0, select.POLLIN)
    watch.register(listener, select.POLLIN)
    while True:
        ready = {fd for fd, _ in watch.poll()}
        if 0 in ready:
            os._exit(0)
        channel, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 2)
            os.close(nothing)
            _be_counted_with(channel)
            return channel
        channel.close()


def _be_counted_with(channel: socket.socket) -> None:
    """Join the control group by which the processor time of the other side is counted, where it has one."""
    pid, _, _ = _CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    with suppress(OSError):
        named = {line.rpartition("/")[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()}
        for name in (one for one in named if one.startswith("sublet-test-")):
            for root in GROUPS:
                with suppress(OSError):
                    (root / name / "cgroup.procs").write_text(str(os.getpid()))
