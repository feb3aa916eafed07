"""Addresses that a link or a peer names, which must not be called (DESIGN 9.12)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.daemons import Daemon, two_daemons
from support.leases import delegate

Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("pair")) as both:
        yield both


@pytest.fixture(scope="module")
def link(daemons: Pair) -> str:
    """A good link of the executor; what a test makes of it never gets there."""
    return str(daemons[1].json("pair")["link"])


@contextmanager
def trap(answer: bytes = b"") -> Iterator[tuple[int, list[bytes]]]:
    """Listen on loopback, answer everybody with ``answer``, and keep what they said."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(65536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1], heard
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://metadata.google.internal/",
        "http://10.0.0.1:PORT/",
        "http://0.0.0.0:PORT/",
        "http://[::]:PORT/",
        "http://2130706433:PORT/",
        "http://0x7f000001:PORT/",
        "http://127.1:PORT/",
        "http://0177.0.0.1:PORT/",
        "http://user:secret@127.0.0.1:PORT/",
        "http://127.0.0.1:PORT/?x=y",
        "http://127.0.0.1:PORT/..%2f",
        "http://127.0.0.1:PORT\\@example.org/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:PORT/",
    ],
)
def test_a_link_to_such_an_address_is_no_link(daemons: Pair, link: str, url: str) -> None:
    delegator, _ = daemons
    with trap() as (port, heard):
        forged = f"sublet+{url.replace('PORT', str(port))}#{link.partition('#')[2]}"
        refused = delegator.json("peers", "add", forged, "--name", "eve", check=(1, 2, 5))

    assert refused["error"]["code"] == "INVALID_ARGUMENT"
    assert heard == []


def test_a_peer_that_redirects_leads_nowhere(daemons: Pair, link: str) -> None:
    delegator, _ = daemons
    with trap() as (hidden, heard_there):
        target = f"http://127.0.0.1:{hidden}/latest/meta-data/"
        redirect = f"HTTP/1.1 307 Elsewhere\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
        with trap(redirect.encode()) as (port, heard):
            forged = f"sublet+http://127.0.0.1:{port}/#{link.partition('#')[2]}"
            refused = delegator.json("peers", "add", forged, "--name", "eve", check=(1, 5))

    assert refused["error"]["code"] in {"PEER_UNREACHABLE", "TOKEN_INVALID"}
    assert len(heard) == 1
    assert heard_there == []


def test_a_paired_peer_whose_address_redirects_leads_nowhere(daemons: Pair, tmp_path: Path) -> None:
    """Whoever takes a peer's port over gets no request sent on, and nothing is lent to it."""
    delegator, executor = daemons
    address = urlsplit(str(executor.info["a2a_url"])).netloc
    executor.run("down")
    try:
        with trap() as (hidden, heard_there):
            target = f"http://127.0.0.1:{hidden}/"
            redirect = f"HTTP/1.1 307 Elsewhere\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
            with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))) as listener:
                thread = threading.Thread(target=_redirect, args=(listener, redirect), daemon=True)
                thread.start()
                ended = delegate(delegator, tmp_path, "touch started")
                listener.shutdown(socket.SHUT_RDWR)
                thread.join(5)
    finally:
        executor.up(
            agent={"id": "shell", "role": "executor", "provider": {"type": "command", "argv": ["sh", "-s"]}},
            a2a=address,
        )

    assert ended["state"] == "error"
    assert ended["error"]["code"] == "PEER_UNREACHABLE"
    assert heard_there == []


def _redirect(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(65536)
            connection.sendall(answer)
