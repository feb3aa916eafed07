"""A stranger's HTTP: nothing costs more than linear work on a few KB, and nothing is read that nobody will use."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import h11
import httpx
import pytest

from attacks.kit.caller import address_of, caller
from sublet.a2a_server.limits import MAX_OPEN_BODY_BYTES
from sublet.daemon.net.http_connection import MAX_HEAD_BYTES, MAX_HEADER_LINES, _Head
from support.a2a_world import TOKEN, World, world

pytestmark = pytest.mark.anyio
HOST = b"Host: localhost\r\n"
CARD = b"/.well-known/agent-card.json"
MANY = b"a: b\r\n" * MAX_HEADER_LINES


@pytest.fixture
async def bob(tmp_path: Path) -> AsyncIterator[World]:
    """A served face."""
    async with world(tmp_path) as served:
        yield served


async def ask(bob: World, words: bytes) -> tuple[int, bytes]:
    """Return what is answered to ``words``, of which a promised body never comes."""
    with anyio.fail_after(8):  # the server itself gives up on a body after ten seconds: this is before
        async with caller(address_of(bob.url)) as stranger:
            await stranger.say(words)
            return await stranger.answer()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        # A body where none belongs, announced and never sent: the refusal does not wait for it.
        (b"GET " + CARD + b" HTTP/1.1\r\n" + HOST + b"Content-Length: 49152\r\n\r\n", 400),
        (b"HEAD " + CARD + b" HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\n", 400),
        (b"GET " + CARD + b" HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n", 400),
        # Who asks is decided from the headers alone.
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2000000\r\n\r\n", 401),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2000000\r\n\r\n", 401),
        (b"POST http://localhost/ HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n", 401),
        (b"POST /sublet/v1/pair HTTP/1.1\r\n" + HOST + b"Content-Length: 16385\r\n\r\n", 413),
        (b"POST /sublet/v1/pair HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"9" * 19 + b"\r\n\r\n", 413),
        # Heads.
        (b"GET " + CARD + b" HTTP/1.1\r\n" + HOST + MANY + b"\r\n", 431),
        (b"GET " + CARD + b" HTTP/1.1\n" + MANY.replace(b"\r", b""), 431),
        (b"GET " + CARD + b" HTTP/1.1\r\n" + HOST + b"a: " + b"x" * 70_000, 431),
        (b"GET " + CARD + b" HTTP/1.1\r\n" + HOST + b"a: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET " + CARD + b" HTTP/1.0\r\n\r\n", 421),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET " + CARD + b" HTTP/1.1\r\n" + HOST + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n", 200),
        (b"\r\n" * 50_000, 400),
    ],
)
async def test_odd_requests_are_refused_at_once(bob: World, words: bytes, status: int) -> None:
    assert (await ask(bob, words))[0] == status


@pytest.mark.parametrize("piece", [1_000, 100_000], ids=["trickles", "at once"])
def test_a_head_is_bounded_however_it_comes(piece: int) -> None:
    head = b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"x" * 70_000 + b"\r\n\r\n"
    connection = _Head(MAX_HEAD_BYTES)

    def take() -> None:
        for at in range(0, len(head), piece):
            connection.receive_data(head[at : at + piece])
            connection.next_event()

    with pytest.raises(h11.RemoteProtocolError):
        take()
    assert connection.refusal[0] == 431


async def test_a_whole_body_on_a_get_is_not_taken(bob: World) -> None:
    body = b'"' * 49_152
    head = b"GET " + CARD + b" HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body)
    assert (await ask(bob, head + body))[0] == 400


async def test_pipelined_requests_are_answered_one_by_one_and_a_head_within_them_is_bounded(bob: World) -> None:
    get = b"GET " + CARD + b" HTTP/1.1\r\n" + HOST
    async with caller(address_of(bob.url)) as stranger:
        await stranger.say((get + b"\r\n") * 3 + get + MANY + b"\r\n")
        assert [(await stranger.answer())[0] for _ in range(4)] == [200, 200, 200, 431]
        assert await stranger.closed()


async def test_what_is_left_of_a_refused_body_is_not_read(bob: World) -> None:
    async with caller(address_of(bob.url)) as stranger:
        await stranger.say(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2000000\r\n\r\n" + b"x" * 1000)
        assert (await stranger.answer())[0] == 401
        with anyio.fail_after(8):
            assert await stranger.closed()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
async def test_other_encodings_do_not_slip_by_the_bounds(bob: World, encoding: str) -> None:
    body = '{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}'
    headers = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0", "Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=bob.url, headers=headers) as http:
        answer = await http.post("/", content=body.encode(encoding))
    assert answer.json()["error"]["code"] == -32700


@pytest.mark.parametrize(
    "params", ['{"id":"a","id":"b"}', "[" + "0," * 5_000 + "0]", '{"id":"\\ud800"}', '{"x":1e999}', '{"x":NaN}']
)
async def test_what_has_two_meanings_or_too_many_values_is_refused(bob: World, params: str) -> None:
    body = '{"jsonrpc":"2.0","id":1,"method":"GetTask","params":' + params + "}"
    headers = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0", "Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=bob.url, headers=headers) as http:
        answer = await http.post("/", content=body)
    assert answer.status_code == 400 or answer.json()["error"]["code"] == -32700
    assert "-32603" not in json.dumps(answer.json())


def test_strangers_may_send_few_kilobytes() -> None:
    assert MAX_OPEN_BODY_BYTES == 16 << 10
