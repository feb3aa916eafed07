"""The relay in the sandbox ends quietly, whichever side goes first."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sublet.supervisor.tool_server import relay

SECONDS = 30


@pytest.mark.parametrize("first", ["agent", "daemon"])
def test_it_ends_without_a_word_when_nobody_takes_any_more(tmp_path: Path, first: str) -> None:
    shutil.copyfile(relay.__file__, tmp_path / "relay.py")
    home = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(f"/proc/self/fd/{home}/{relay.SOCKET}")
        os.close(home)
        listening.listen(1)
        listening.settimeout(SECONDS)
        argv = [sys.executable, "-I", "-S", str(tmp_path / "relay.py")]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stdin is not None
            assert running.stdout is not None
            assert running.stderr is not None
            daemon, _ = listening.accept()
            if first == "agent":
                running.stdout.close()
                daemon.sendall(b"{}\n")
            else:
                # What it has not read yet is what makes the other end a broken connection, and not just its end.
                running.stdin.write(b"{}\n")
                running.stdin.flush()
                assert daemon.recv(1, socket.MSG_PEEK) == b"{"
                daemon.close()
            assert running.wait(SECONDS) == 0
            assert running.stderr.read() == b""
            daemon.close()
