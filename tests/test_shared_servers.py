"""What has been loaded once serves all who connect, each by a fork of its own, and ends with who started it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from support.shared_servers import connected

TESTS = Path(__file__).parent
SECONDS = 20.0
SERVER = """
import os, socket, sys
sys.path.append(sys.argv[1])
from support.shared_servers import asker
with asker(socket.socket(fileno=int(sys.argv[2]))) as channel:
    while asked := channel.recv(100):
        channel.send(b"%d %d %s" % (os.getpid(), os.getsid(0), asked))
"""


def test_each_who_connects_is_served_by_a_fork_that_outlives_the_others(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "name"))
        listener.listen()
        fd = listener.fileno()
        argv = [sys.executable, "-P", "-c", SERVER, str(TESTS), str(fd)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=(fd,), start_new_session=True)
    assert process.stdin is not None
    try:
        with connected(str(tmp_path), "name") as first, connected(str(tmp_path), "name") as other:
            told = []
            for channel in (first, other):
                channel.settimeout(SECONDS)
                channel.send(b"who")
                told.append(channel.recv(100).split())
            pids = [int(pid) for pid, _, _ in told]
            assert len({process.pid, os.getpid(), *pids}) == 4
            assert [session for _, session, _ in told] == [pid for pid, _, _ in told], "each may be ended by its group"
            process.stdin.close()
            assert process.wait(SECONDS) == 0
            first.close()
            other.send(b"still")
            assert other.recv(100).split()[2] == b"still"
    finally:
        process.kill()
        process.wait()
