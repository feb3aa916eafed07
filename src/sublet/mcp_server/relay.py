"""``sublet mcp``: a relay between an MCP host's stdio and the daemon's ``mcp.sock`` (DESIGN 3).

The MCP SDK takes most of a second and 60 MiB to import, so it lives in the daemon and each host gets this file, which
imports nothing but small built-in modules: ``socket``, ``json`` and ``signal`` alone would cost 20 ms together. It
runs inside the console script, which starts the interpreter once; ``python -I -S relay.py`` does the same.

One thread, one ``poll``. Lines are forwarded whole, which is what makes a restart of the daemon survivable:

* the host's ``initialize``, ``notifications/initialized`` and resource subscriptions are remembered, sent again to the
  new daemon, and the answers to them dropped; a ``subscriptions/listen`` ends with an error, and the host listens anew;
* a request that no daemon has read in full is simply sent to the next one;
* a request that was under way is sent again if it only reads (``SAFE_METHODS``, ``SAFE_TOOLS``). Any other may have had
  its effect, so it is answered with JSON-RPC error -32603, which says so and how to retry safely;
* whatever the new daemon does not get within ``RESUME_SECONDS`` is answered with an error too: never silence.

The daemon is started when the host asks for something while there is none, not merely because one went away, so that
``sublet down`` stays down.
"""

from __future__ import annotations

import os
import select
import sys
import time

try:  # 4 ms less than the module around it
    from _socket import AF_UNIX, SOCK_STREAM, socket
except ImportError:  # another interpreter
    from socket import AF_UNIX, SOCK_STREAM, socket  # type: ignore[assignment]

if __name__ == "__main__":  # -I leaves nothing of ours on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from sublet.daemon.config.paths import Home, resolve_home
from sublet.mcp_server.relay_session import Lines, RelaySession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from subprocess import Popen

HIGH_WATER = 1024 * 1024
"""Bytes that may wait for one side before the other is no longer read."""
CHUNK = 65536
STDOUT_CHUNK = 4096
"""``PIPE_BUF``: after POLLOUT a write of this size never blocks, so the host's descriptors can stay blocking."""
START_SECONDS = 20.0
RESUME_SECONDS = 10.0
EOF_GRACE_SECONDS = 0.5
"""How long answers that are under way are waited for when the host sends no more."""
LOAD_SECONDS = 5.0
"""The same for the daemon's first word, before which it may have to load what serves MCP."""
PARENT_POLL_SECONDS = 0.5
CONNECT_POLL_SECONDS = 0.05
MAX_CONNECT_POLL_SECONDS = 2.0
MAX_START_ERROR = 4096
EXIT_ALREADY_RUNNING = 3
"""Of ``sublet up``: another start was quicker, which is as good."""
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def start_command() -> list[str]:
    """Return the command that starts a daemon and returns when it is ready.

    ``-P`` keeps the host's working directory, usually somebody's project, off the import path.
    """
    return [sys.executable, "-P", "-m", "sublet", "up", "--detach"]


class Starter:
    """One attempt to start the daemon: a short-lived process of its own session, which we never wait for."""

    def __init__(self, command: Sequence[str]) -> None:
        import subprocess

        env = dict(os.environ)
        if env.get("SUBLET_HOME"):  # may be relative to our directory, which the daemon must not keep busy
            env["SUBLET_HOME"] = resolve_home(env).root
        self._process: Popen[bytes] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env=env,
            start_new_session=True,
        )
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        self._said = b""
        self.fd = _watch(self._process.pid)

    def ended(self) -> bool:
        """Tell whether it has ended, and reap it."""
        assert self._process.stderr is not None
        # In this order: its last words may come between a look at what it said and one at whether it has ended.
        over = self._process.poll() is not None
        while chunk := self._process.stderr.read(CHUNK):
            self._said = (self._said + chunk)[-MAX_START_ERROR:]
        return over

    def failure(self) -> str | None:
        """Return what it said if it has ended without a daemon."""
        if not self.ended() or self._process.returncode in (0, EXIT_ALREADY_RUNNING):
            return None
        return self._said.decode(errors="replace").strip() or f"it ended with status {self._process.returncode}"

    def close(self) -> None:
        """Let go of it, and end it where it hangs."""
        assert self._process.stderr is not None
        self._process.stderr.close()
        if self.fd is not None:
            os.close(self.fd)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Relay:
    """The loop. ``run`` returns the exit status.

    Args:
        home: where the daemon's socket is.
        command: how to start a daemon.
        stdin, stdout: the host's descriptors; their flags are left alone, since others may share them.
    """

    def __init__(self, home: Home, command: Sequence[str], stdin: int = 0, stdout: int = 1) -> None:
        self._home = home
        self._command = command
        self._stdin = stdin
        self._stdout = stdout
        self._session = RelaySession()
        self._from_host = Lines()
        self._from_daemon = Lines()
        self._daemon: socket | None = None
        self._offset = 0
        self._starter: Starter | None = None
        self._retry = CONNECT_POLL_SECONDS
        self._retry_at = 0.0
        self._give_up_at: float | None = None
        self._eof_at: float | None = None
        self._heard = False
        self._parent = os.getppid()
        self._parent_fd = _watch(self._parent)

    def run(self) -> int:
        """Relay until the host or our parent is gone."""
        try:
            while not self._finished():
                if self._daemon is None:
                    self._reconnect()
                self._serve(self._poll())
        except BrokenPipeError:
            return 0  # nobody reads our answers any more
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        return 0

    def _finished(self) -> bool:
        if os.getppid() != self._parent:
            return True
        if self._eof_at is None:
            return False
        session = self._session
        busy = self._daemon is not None and (session.queue or session.in_flight)
        grace = EOF_GRACE_SECONDS if self._heard else LOAD_SECONDS
        return not (busy or session.outbox) or time.monotonic() > self._eof_at + grace

    def _poll(self) -> dict[int, int]:
        session = self._session
        wanted = {self._stdout: select.POLLOUT if session.outbox else 0}
        if self._eof_at is None and max(session.queued_bytes, len(session.outbox)) < HIGH_WATER:
            wanted[self._stdin] = select.POLLIN
        timeout = PARENT_POLL_SECONDS
        if self._parent_fd is not None:
            wanted[self._parent_fd] = select.POLLIN
            timeout = 3600.0
        if self._eof_at is not None:
            timeout = CONNECT_POLL_SECONDS
        if self._daemon is None:
            timeout = min(timeout, max(self._retry_at - time.monotonic(), 0.0))
        else:
            events = select.POLLIN if len(session.outbox) < HIGH_WATER else 0
            if session.next_frame() is not None:
                events |= select.POLLOUT
            if events:
                wanted[self._daemon.fileno()] = events
            if self._starter is not None and self._starter.fd is not None:
                wanted[self._starter.fd] = select.POLLIN
        poller = select.poll()
        for fd, events in wanted.items():
            poller.register(fd, events)
        return dict(poller.poll(int(timeout * 1000) + 1))

    def _serve(self, ready: dict[int, int]) -> None:
        if self._parent_fd in ready:
            raise BrokenPipeError
        if ready.get(self._stdout, 0) & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            raise BrokenPipeError
        if self._starter is not None and self._daemon is not None and self._starter.ended():
            self._drop_starter()
        if self._stdin in ready:
            self._read_host()
        if self._daemon is not None and self._daemon.fileno() in ready:
            try:
                self._exchange(self._daemon, ready[self._daemon.fileno()])
            except BlockingIOError:
                pass
            except OSError:
                self._lose()
        if self._session.outbox and ready.get(self._stdout, 0) & select.POLLOUT:
            written = os.write(self._stdout, self._session.outbox[:STDOUT_CHUNK])
            del self._session.outbox[:written]

    def _read_host(self) -> None:
        try:
            data = os.read(self._stdin, CHUNK)
        except OSError:
            data = b""
        if not data:
            self._eof_at = time.monotonic()
        for line in self._from_host.feed(data):
            self._session.from_host(line)

    def _exchange(self, daemon: socket, events: int) -> None:
        if events & ~select.POLLOUT:
            data = daemon.recv(CHUNK)
            if not data:
                raise ConnectionResetError
            if self._eof_at is not None and not self._heard:
                self._eof_at = time.monotonic()
            self._heard = True
            for line in self._from_daemon.feed(data):
                try:
                    if isinstance(line, tuple):
                        raise ValueError("the daemon sent a message that is too large")
                    self._session.from_daemon(line)
                except ValueError as error:
                    _complain("INTERNAL", str(error), "Restart the MCP server in your host.")
                    raise SystemExit(EXIT_FAILED) from None
        frame = self._session.next_frame()
        if events & select.POLLOUT and frame is not None:
            # A slice of a view, since a large message goes out in many pieces.
            self._offset += daemon.send(memoryview(frame.line)[self._offset :])
            if self._offset == len(frame.line):
                self._offset = 0
                self._session.delivered()

    def _lose(self) -> None:
        assert self._daemon is not None
        self._daemon.close()
        self._daemon = None
        self._offset = 0
        self._from_daemon = Lines()
        self._session.lost()
        self._retry = CONNECT_POLL_SECONDS
        # Not at once: a daemon that refuses us closes the connection as soon as it has accepted it.
        self._retry_at = time.monotonic() + self._retry
        self._give_up_at = time.monotonic() + RESUME_SECONDS

    def _reconnect(self) -> None:
        now = time.monotonic()
        if now < self._retry_at and not self._session.wants_daemon:
            return
        daemon = self._connect()
        if daemon is not None:
            self._daemon = daemon
            self._give_up_at = None
            self._session.connected()
            return
        urgent = self._starter is not None or bool(self._session.queue)
        self._retry = CONNECT_POLL_SECONDS if urgent else min(self._retry * 2, MAX_CONNECT_POLL_SECONDS)
        self._retry_at = now + self._retry
        if self._session.wants_daemon:
            self._session.wants_daemon = False
            if self._starter is None:
                self._start(now)
        why = self._starter.failure() if self._starter is not None else None
        if why is not None:
            self._give_up(f"The Sublet daemon did not start: {why}")
        elif self._give_up_at is not None and now > self._give_up_at:
            self._give_up("The Sublet daemon is not running and did not come up in time.")

    def _connect(self) -> socket | None:
        try:
            home = self._home.found()
            if not home.verify_runtime():
                return None
        except Exception as error:  # the only kind is "not ours alone", whose type is too slow to import up front
            _complain("UNAVAILABLE", str(error), "")
            raise SystemExit(EXIT_FAILED) from None
        daemon = socket(AF_UNIX, SOCK_STREAM)
        try:
            daemon.connect(home.mcp_socket)
        except OSError:
            daemon.close()
            return None
        daemon.setblocking(False)
        return daemon

    def _start(self, now: float) -> None:
        try:
            self._starter = Starter(self._command)
        except OSError as error:
            self._give_up(f"The Sublet daemon could not be started: {error}")
            return
        self._give_up_at = now + START_SECONDS
        self._retry = CONNECT_POLL_SECONDS
        self._retry_at = now + self._retry

    def _give_up(self, why: str) -> None:
        if self._session.queue:
            hint = "Run `sublet doctor` in a terminal; the next call tries again."
            _complain("DAEMON_UNAVAILABLE", why, hint)
            self._session.give_up(f"DAEMON_UNAVAILABLE: {why} {hint}")
        self._give_up_at = None
        self._drop_starter()

    def _drop_starter(self) -> None:
        if self._starter is not None:
            self._starter.close()
            self._starter = None


def _watch(pid: int) -> int | None:
    """Return a descriptor that becomes readable when ``pid`` ends, where the system has such a thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _complain(code: str, message: str, hint: str) -> None:
    text = f"sublet mcp: {code}: {message}" + (f" ({hint})" if hint else "")
    os.write(2, text.encode(errors="replace") + b"\n")


def main() -> int:
    """Relay between this process's stdio and the daemon of ``SUBLET_HOME``."""
    for fd in (0, 1, 2):
        # A descriptor that was closed on us must not become our socket, or complaints would go to the daemon.
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    return Relay(resolve_home(), start_command()).run()


if __name__ == "__main__":
    sys.exit(main())
