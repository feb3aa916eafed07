"""Runs the command line in forks of one process that has loaded it, since loading takes longer than most commands do.

A fork has an environment, a directory, arguments and standard streams of its own, as a process of ``sublet`` has, and
ends as one does. ``tests/e2e/test_daemon_process.py`` starts the installed command itself, as all do that need a
process group, a terminal or another machine.

Run as a program it serves one socket, whose descriptor is its argument, and where there is a second one it has daemons
forked by ``daemon_server.py`` behind that; or, in a run of several workers, all who connect (``shared_servers.py``).
Each message is a JSON object with ``argv``, ``env``, ``cwd`` and
``network``, which is the path of a network namespace or empty, and brings four descriptors: the three streams, and one
that is told the fork's process id and, at its end, its status. With ``terminal`` the streams are one, and the fork's
controlling terminal.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.forked import Forked
    from support.shared_servers import DAEMONS, LISTENING, asker, connected
    from support.sites import load_site
    from support.warm import build_models, import_below

MAX_MESSAGE_BYTES = 4 << 20
PIECE_BYTES = 64 << 10
END_SECONDS = 5.0
FORKED_DAEMONS = "SUBLET_TEST_FORKED_DAEMONS"
"""The environment variable that has daemons forked as well: tests set it, benchmarks measure real ones."""


class CommandServer:
    """The process that forks, and the way to ask it."""

    def __init__(self) -> None:
        from support.shared_servers import COMMANDS, SHARED, connected  # not at the top, for the program beside it

        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        if SHARED in os.environ and FORKED_DAEMONS in os.environ:
            self._socket = connected(os.environ[SHARED], COMMANDS)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE_BYTES)
            return
        self._socket, theirs = _channel()
        asking, daemons = _channel()
        with theirs, asking, daemons:
            if FORKED_DAEMONS in os.environ:
                self._processes = [_started("daemon_server.py", daemons), _started("command_server.py", theirs, asking)]
            else:
                self._processes = [_started("command_server.py", theirs)]

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: str, timeout: float, network: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Return what a command came to, as ``subprocess.run`` does.

        Raises:
            subprocess.TimeoutExpired: it took longer than ``timeout`` seconds, and was ended.
        """
        (in_read, in_write), *outputs = (os.pipe() for _ in range(4))
        given = [in_read, *(write for _, write in outputs)]
        try:
            self._ask({"argv": list(argv), "env": dict(env), "network": network}, given)
        finally:
            for fd in given:
                os.close(fd)
        read = {fd: bytearray() for fd, _ in outputs}
        _exchange(in_write, stdin.encode(), read, list(argv), timeout)
        out, err, end = (bytes(read[fd]) for fd, _ in outputs)
        status = int(end.split()[1]) if end.count(b"\n") > 1 else -signal.SIGKILL
        return subprocess.CompletedProcess(list(argv), status, out.decode(), err.decode())

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], terminal: int) -> Forked:
        """Start a command in a session of its own, with ``terminal`` as its controlling terminal and its streams."""
        from support.forked import Forked  # not at the top, for the program beside it

        told, end = os.pipe()
        try:
            self._ask({"argv": list(argv), "env": dict(env), "network": "", "terminal": True}, [*[terminal] * 3, end])
        finally:
            os.close(end)
        return Forked(told)

    def close(self) -> None:
        """Let the processes end, which they do once nobody can ask them any more."""
        self._socket.close()
        for process in self._processes:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:  # a command that goes on without the test holds its end
                process.kill()
                process.wait()

    def _ask(self, wanted: Mapping[str, object], fds: Sequence[int]) -> None:
        message = json.dumps({**wanted, "cwd": os.getcwd()}).encode()
        with self._lock:
            socket.send_fds(self._socket, [message], fds)


def _channel() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE_BYTES)
    return pair


def _started(program: str, *sockets: socket.socket) -> subprocess.Popen[bytes]:
    fds = tuple(one.fileno() for one in sockets)
    return subprocess.Popen(
        # Neither is to find modules beside itself.
        [sys.executable, "-P", str(Path(__file__).resolve().with_name(program)), *map(str, fds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=fds,
        start_new_session=True,
    )


def _exchange(feed: int, text: bytes, read: dict[int, bytearray], argv: list[str], timeout: float) -> None:
    """Write ``text`` and read until all have closed; the last of ``read`` tells the process id first."""
    end = list(read)[-1]
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as waiting:
        os.set_blocking(feed, False)
        waiting.register(feed, selectors.EVENT_WRITE)
        for output in read:
            waiting.register(output, selectors.EVENT_READ)
        try:
            while waiting.get_map():
                for key, _ in waiting.select(max(deadline - time.monotonic(), 0)):
                    if key.fd == feed:
                        text = _write(waiting, feed, text)
                    else:
                        _read(waiting, key.fd, read[key.fd])
                if time.monotonic() > deadline:
                    if read[end]:
                        os.kill(int(read[end].split()[0]), signal.SIGKILL)
                    raise subprocess.TimeoutExpired(argv, timeout, *(bytes(one) for one in list(read.values())[:2]))
        finally:
            for key in list(waiting.get_map().values()):
                os.close(key.fd)


def _write(waiting: selectors.BaseSelector, fd: int, text: bytes) -> bytes:
    try:
        text = text[os.write(fd, text[:PIECE_BYTES]) :] if text else text
    except BrokenPipeError:
        text = b""
    if not text:
        waiting.unregister(fd)
        os.close(fd)
    return text


def _read(waiting: selectors.BaseSelector, fd: int, read: bytearray) -> None:
    if piece := os.read(fd, PIECE_BYTES):
        read += piece
    else:
        waiting.unregister(fd)
        os.close(fd)


@cache
def command_server() -> CommandServer:
    """Return the one of this process."""
    server = CommandServer()
    atexit.register(server.close)
    return server


def load() -> None:
    """Load what commands need."""
    import rich.console
    import rich.table  # noqa: F401
    import typer._adapters
    import typer._click.decorators  # noqa: F401

    from sublet.cli import app, entry, rendering  # noqa: F401
    from sublet.cli.command_table import TABLE, import_command
    from sublet.daemon import api
    from sublet.daemon.control import client  # noqa: F401

    for name, command in TABLE.items():
        import_command(name, command)
    import_below(api)
    import_below(rendering)
    build_models()
    # A collection in a fork would copy all that it looks through.
    gc.collect()
    gc.freeze()


def serve(channel: socket.socket) -> None:
    """Fork for each message until the other side has gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        message, fds, _, _ = socket.recv_fds(channel, MAX_MESSAGE_BYTES, 4)
        if not message:
            return
        if os.fork() == 0:
            channel.close()
            _become(json.loads(message), fds)
        for fd in fds:
            os.close(fd)


def _become(wanted: dict[str, object], fds: Sequence[int]) -> None:
    """Do in this process what the command would do in its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, end = fds
    os.set_inheritable(end, False)
    status = 70
    try:
        os.write(end, b"%d\n" % os.getpid())
        Path("/proc/self/comm").write_text("sublet")  # for whoever looks at a list of processes
        if wanted["network"]:
            with open(str(wanted["network"])) as network:
                enter_network(network.fileno())
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
            os.close(fd)
        if wanted.get("terminal"):
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        os.environ.clear()
        os.environ.update(wanted["env"])  # type: ignore[call-overload]
        os.chdir(str(wanted["cwd"]))
        load_site(os.environ)
        sys.argv = list(wanted["argv"])  # type: ignore[call-overload]
        from sublet.cli.entry import main

        try:
            status = main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os.write(end, b"%d\n" % status)
        os._exit(status)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))
    from support.daemon_server import enter_network, fork_daemons_by
    from support.shared_servers import DAEMONS, LISTENING, asker, connected
    from support.sites import load_site
    from support.warm import build_models, import_below

    if sys.argv[1] == LISTENING:
        load()
        with asker(socket.socket(fileno=int(sys.argv[2]))) as server:
            fork_daemons_by(connected(sys.argv[3], DAEMONS))
            serve(server)
    else:
        if sys.argv[2:]:
            fork_daemons_by(socket.socket(fileno=int(sys.argv[2])))
        load()
        with socket.socket(fileno=int(sys.argv[1])) as server:
            serve(server)
