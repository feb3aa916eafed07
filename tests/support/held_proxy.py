"""A TCP proxy in front of a daemon that stops at a word: what a test does then happens before the word arrives."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial

CHUNK = 65536
END_SECONDS = 5.0


class HeldProxy:
    """Forwards connections to a port; before a chunk with ``word`` in it goes on to the target, ``action`` is called.

    Args:
        target: port on loopback.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.refusing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._word = b""
        self._action: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def before(self, word: bytes, action: Callable[[], None]) -> None:
        """Call ``action`` once, before the next chunk with ``word`` in it is forwarded; it may take its time."""
        with self._lock:
            self._word, self._action = word, action

    def cut(self) -> None:
        """Break every connection."""
        for each in list(self._open):
            _end(each)

    def serve(self) -> None:
        """Accept until closed."""
        while True:
            try:
                client, _ = self._listener.accept()
                if self.refusing:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.target))
            except ConnectionRefusedError:
                client.close()
                continue
            except OSError:
                return
            self._open |= {client, server}
            self._run(partial(self._pump, client, server, checked=True))
            self._run(partial(self._pump, server, client, checked=False))

    def close(self) -> None:
        """End everything."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._open):
            _end(each)
        for thread in self._threads:
            thread.join(END_SECONDS)
        for each in self._open:
            each.close()

    def _run(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, *, checked: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK):
                if checked and (action := self._taken(chunk)) is not None:
                    action()
                sink.sendall(chunk)
        _end(source)
        _end(sink)

    def _taken(self, chunk: bytes) -> Callable[[], None] | None:
        with self._lock:
            if not self._word or self._word not in chunk:
                return None
            self._word = b""
            return self._action


@contextlib.contextmanager
def held_proxy(target: int) -> Iterator[HeldProxy]:
    """Run a proxy to ``target`` while the block runs."""
    proxy = HeldProxy(target)
    serving = threading.Thread(target=proxy.serve, daemon=True)
    serving.start()
    try:
        yield proxy
    finally:
        proxy.close()
        serving.join(END_SECONDS)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
