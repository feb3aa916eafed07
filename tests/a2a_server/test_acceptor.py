"""Callers who open many connections and say nothing keep nobody out."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from sublet.a2a_server.face import MAX_CONNECTIONS
from sublet.daemon.net import acceptor
from sublet.daemon.net.acceptor import Acceptor
from sublet.daemon.peering.identity import load_tls
from support.a2a_world import World

pytestmark = pytest.mark.anyio
CARD = "/.well-known/agent-card.json"


@contextmanager
def silent(address: tuple[str, int], count: int, first_words: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open many connections that say no more than ``first_words``."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_connection(address, timeout=20)) for _ in range(count)]
        for one in sockets:
            one.sendall(first_words)
        yield sockets


PAIRING = b"POST /sublet/v1/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n{"


@pytest.mark.parametrize(
    "first_words",
    [b"", b"POST / HTTP/1.1\r\nHost: ", f"GET {CARD} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), PAIRING],
)
async def test_silent_connections_keep_nobody_out(bob: World, first_words: bytes) -> None:
    host, port = bob.url.removeprefix("http://").split(":")

    def flood_and_ask() -> int:
        with silent((host, int(port)), 400, first_words), httpx.Client(trust_env=False, timeout=20) as http:
            return http.get(bob.url + CARD).status_code

    assert await asyncio.to_thread(flood_and_ask) == 200


async def test_the_longest_silence_is_ended_first(bob: World) -> None:
    host, port = bob.url.removeprefix("http://").split(":")

    def flood() -> tuple[bytes, bytes]:
        request = f"GET {CARD} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        with silent((host, int(port)), MAX_CONNECTIONS + 10) as sockets:
            sockets[-1].sendall(request)
            return sockets[0].recv(100), sockets[-1].recv(100)

    first, last = await asyncio.to_thread(flood)
    assert first.startswith(b"HTTP/1.1 503")
    assert last.startswith(b"HTTP/1.1 200")


class Greeting(asyncio.Protocol):
    """Says hello."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


async def test_handshakes_that_never_come_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "MAX_HANDSHAKES", 8)
    files = load_tls(tmp_path, ("localhost",))
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(files.certificate, files.key)
    ours = ssl.create_default_context(cadata=files.certificate_pem)

    def flood(address: tuple[str, int]) -> tuple[bytes, list[bytes]]:
        with silent(address, 30) as sockets:
            with ours.wrap_socket(socket.create_connection(address, timeout=20), server_hostname="localhost") as good:
                words = good.recv(100)
            return words, [one.recv(1) for one in sockets[: 30 - 8]]

    with socket.socket() as listener:
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(Acceptor(listener, Greeting, theirs).serve())
            words, refused = await asyncio.to_thread(flood, listener.getsockname())
            serving.cancel()
    assert words == b"hello"
    assert set(refused) == {b""}
