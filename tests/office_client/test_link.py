"""Servers of offices that are hostile, or none: each ends one connection, and nothing else."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from sublet.daemon.peering.identity import load_tls
from sublet.office_client import link as module
from sublet.office_client.guarded_socket import FRAMES_AT_ONCE
from sublet.office_client.link import MAX_EVENTS, Link, Place, Unreachable, open_link
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.version import handshake_refusal, parse_version
from sublet.turns import Turnstile

pytestmark = pytest.mark.anyio

OPENS = '0{"sid":"a","pingInterval":25000,"pingTimeout":20000,"maxPayload":100000}'
Plays = Callable[[ServerConnection], Awaitable[None]]


@dataclass
class Answering:
    """A Computer that answers as it was asked, or never."""

    hangs: bool = False
    answer_with: JsonValue = None
    asked: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    under_way: int = 0
    most: int = 0

    async def answer(self, event: str, arguments: tuple[JsonValue, ...]) -> JsonValue:
        self.asked.append(event)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if self.hangs:
                await anyio.sleep_forever()
            return self.answer_with
        finally:
            self.under_way -= 1

    def instead(self, event: str, why: str) -> JsonValue:
        return why

    def unsent(self, event: str, arguments: tuple[JsonValue, ...]) -> None:
        self.lost.append(event)

    def hear(self, event: str, arguments: tuple[JsonValue, ...]) -> None:
        self.heard.append(event)


@asynccontextmanager
async def playing(play: Plays, **options: Any) -> AsyncIterator[Place]:
    """Serve as ``play`` does once a client has connected."""
    async with serve(play, "127.0.0.1", 0, max_size=None, compression=None, **options) as server:
        port = server.sockets[0].getsockname()[1]
        yield Place(f"http://127.0.0.1:{port}", "office")


async def lets_in(socket: ServerConnection) -> None:
    await socket.send(OPENS)
    assert str(await socket.recv()).startswith("40/smcp,")
    await socket.send('40/smcp,{"sid":"x"}')


async def served(then: Plays, answers: Answering) -> str:
    """Return why a connection has ended to a server that lets it in, and then does as ``then``."""

    async def play(socket: ServerConnection) -> None:
        await lets_in(socket)
        await then(socket)
        await socket.wait_closed()

    async with playing(play) as place:
        link = await open_link(place, "token")
        try:
            with anyio.fail_after(30):
                return await link.serve(answers)
        finally:
            await link.close()


async def ends_after(socket: ServerConnection, *frames: str) -> None:
    for frame in frames:
        await socket.send(frame)


@pytest.mark.parametrize(
    "frame",
    ["nonsense", "5", "0{", "43/smcp,[1]", "4" * 3, "x" * (17 << 20)],
    ids=["nonsense", "type", "open", "ack", "other", "huge"],
)
async def test_a_frame_that_is_none_ends_its_connection(frame: str) -> None:
    answers = Answering()

    async def then(socket: ServerConnection) -> None:
        await socket.send(frame)
        await socket.send("1")

    assert await served(then, answers)
    assert answers.asked == []


async def test_whoever_opens_with_nothing_or_is_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_SECONDS", 0.3)

    async def silent(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async def late(socket: ServerConnection) -> None:
        await socket.send(OPENS)
        await socket.wait_closed()

    async def talks(socket: ServerConnection) -> None:
        await socket.send(OPENS)
        with suppress(ConnectionClosed):
            while True:
                await socket.send("2")
                await asyncio.sleep(0.05)

    async def other(socket: ServerConnection) -> None:
        await socket.send("2")
        await socket.wait_closed()

    for play in (silent, late, talks):
        async with playing(play) as place:
            with anyio.fail_after(20), pytest.raises(Unreachable, match="said nothing"):
                await open_link(place, "token")
    async with playing(other) as place:
        with pytest.raises(SubletError, match="no office is served"):
            await open_link(place, "token")


async def test_a_server_that_says_nothing_more_is_left() -> None:
    async def play(socket: ServerConnection) -> None:
        await socket.send('0{"pingInterval":1,"pingTimeout":1}')
        await socket.recv()
        await socket.send('40/smcp,{"sid":"x"}')
        await socket.send("2")
        assert await socket.recv() == "3"
        await socket.wait_closed()

    async with playing(play) as place:
        link = await open_link(place, "token")
        assert await link.serve(Answering()) == "the server has said nothing in 2 s"
        await link.close()


async def test_a_token_that_is_not_taken_is_shown_once() -> None:
    shown: list[str] = []

    async def play(socket: ServerConnection) -> None:
        await socket.send(OPENS)
        shown.append(str(await socket.recv()))
        await socket.send('44/smcp,{"message":"no"}')
        await socket.wait_closed()

    async with playing(play) as place:
        with pytest.raises(SubletError) as refused:
            await open_link(place, "token")
    assert refused.value.code is LocalCode.TOKEN_INVALID
    assert shown == ['40/smcp,{"token":"token"}']


async def test_redirects_are_not_followed() -> None:
    asked: list[str] = []

    async def play(socket: ServerConnection) -> None:
        asked.append("elsewhere")

    async with playing(play) as elsewhere:

        def redirect(_: ServerConnection, request: Request) -> Response:
            response = Response(302, "Found", request.headers.__class__(), b"")
            response.headers["Location"] = f"{elsewhere.url.replace('http', 'ws')}/socket.io/"
            response.headers["Content-Length"] = "0"
            return response

        async with playing(play, process_request=redirect) as place:
            with pytest.raises(SubletError, match="it answers 302"):
                await open_link(place, "token")
    assert asked == []


async def test_a_token_is_shown_to_the_certificate_that_was_given_and_to_no_other(tmp_path: Path) -> None:
    ours, other = (load_tls(tmp_path / name, ["127.0.0.1"]) for name in ("ours", "other"))
    shown: list[str] = []

    async def play(socket: ServerConnection) -> None:
        await socket.send(OPENS)
        shown.append(str(await socket.recv()))
        await socket.send('40/smcp,{"sid":"x"}')
        await socket.wait_closed()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours.certificate, ours.key)
    async with playing(play, ssl=context) as place:
        url = place.url.replace("http", "https")
        for certificate in (ssl.PEM_cert_to_DER_cert(other.certificate_pem), None):
            with pytest.raises(SubletError, match="not trusted") as refused:
                await open_link(Place(url, "office", certificate), "token")
            assert refused.value.code is LocalCode.KEY_CHANGED
        assert shown == []
        await (await open_link(Place(url, "office", ssl.PEM_cert_to_DER_cert(ours.certificate_pem)), "token")).close()
    assert shown == ['40/smcp,{"token":"token"}']


async def test_another_version_is_told_as_such() -> None:
    paths: list[str] = []

    def refuse(socket: ServerConnection, request: Request) -> Response:
        paths.append(request.path)
        body = handshake_refusal(["0.4.0"], parse_version("0.5.2"))
        return socket.respond(HTTPStatus.BAD_REQUEST, json.dumps(body))

    async def closes(socket: ServerConnection) -> None:
        await socket.close(4900)

    async def unused(socket: ServerConnection) -> None:
        raise AssertionError

    for play, options in ((unused, {"process_request": refuse}), (closes, {})):
        async with playing(play, **options) as place:
            with pytest.raises(SubletError, match="another version") as refused:
                await open_link(place, "token")
            assert refused.value.code is LocalCode.UNAVAILABLE
    assert paths == ["/socket.io/?EIO=4&transport=websocket&a2c_version=0.4.0"]


@pytest.mark.parametrize(("status", "passes"), [(503, True), (429, True), (404, False), (200, False)])
async def test_who_is_busy_is_tried_again_and_who_serves_no_office_is_not(status: int, passes: bool) -> None:
    def refuse(socket: ServerConnection, _: Request) -> Response:
        return socket.respond(HTTPStatus(status), "x" * 200_000)

    async def unused(socket: ServerConnection) -> None:
        raise AssertionError

    async with playing(unused, process_request=refuse) as place:
        with pytest.raises(Unreachable if passes else SubletError):
            await open_link(place, "token")
    with pytest.raises(Unreachable, match="can't be reached"):
        await open_link(place, "token")


async def test_calls_without_end_have_a_bound_and_each_is_answered() -> None:
    answers = Answering(hangs=True)
    refused: list[Any] = []

    async def then(socket: ServerConnection) -> None:
        for number in range(MAX_EVENTS + 20):
            await socket.send(f'42/smcp,{number}["client:tool_call",{{}}]')
        await socket.send('42/smcp,["client:tool_call",{}]')
        frames = [str(await socket.recv()).removeprefix("43/smcp,") for _ in range(20)]
        refused.extend(json.loads(frame.lstrip("0123456789")) for frame in frames)
        while answers.most < MAX_EVENTS:
            await asyncio.sleep(0.01)
        await socket.send("1")

    assert await served(then, answers) == "the server has ended the connection"
    assert answers.most == MAX_EVENTS
    assert answers.under_way == 0
    assert [one[0]["code"] for one in refused] == [429] * 20
    # Whoever wants no answer asks nothing: only notices come like this.
    assert answers.heard == ["client:tool_call"]


async def test_what_is_binary_deep_or_too_large_to_send_is_answered() -> None:
    answers = Answering(answer_with="x" * 200_000)
    got: list[Any] = []

    async def then(socket: ServerConnection) -> None:
        for frame in ('451-/smcp,1["client:tool_call",{"_placeholder":true,"num":0}]', f'42/smcp,2["a",{"[" * 90}]'):
            await socket.send(frame)
            got.append(str(await socket.recv()))
        await socket.send(b"\x00\x01")
        await socket.send('42/smcp,3["client:get_tools",{}]')
        got.append(str(await socket.recv()))
        answers.answer_with = float("nan")
        await socket.send('42/smcp,4["client:get_tools",{}]')
        got.append(str(await socket.recv()))
        await socket.send("41/smcp,")

    assert await served(then, answers) == "the server has ended the connection"
    assert [one.split("[")[0] for one in got] == [f"43/smcp,{number}" for number in (1, 2, 3, 4)]
    assert all('"code":400' in one for one in got[:2])
    assert "200,013 bytes, 100,000 are allowed" in got[2]
    assert "is no JSON" in got[3]
    assert answers.asked == ["client:get_tools"] * 2


async def test_who_never_reads_our_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 1 << 20)
    answers = Answering(answer_with="x" * 90_000)

    over = anyio.Event()

    async def play(socket: ServerConnection) -> None:
        await lets_in(socket)
        socket.transport.pause_reading()
        for number in range(MAX_EVENTS):
            await socket.send(f'42/smcp,{number}["client:get_tools",{{}}]')
        await over.wait()

    async with playing(play, close_timeout=0.1) as place:
        link = await open_link(place, "token")
        with anyio.fail_after(30):
            why = await link.serve(answers)
        await link.close()
        over.set()
    assert why == "the server does not read our answers"
    # Whoever has asked does not know what came of it.
    assert answers.lost
    assert len(answers.lost) <= len(answers.asked)


async def test_what_is_asked_of_the_server_is_answered_or_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 0.3)

    async def play(socket: ServerConnection) -> None:
        await lets_in(socket)
        await socket.recv()
        await socket.send("43/smcp,99[1]")
        await socket.send("43/smcp,1[true,null]")
        await socket.send("43/smcp,1[false]")
        await socket.wait_closed()

    async with playing(play) as place:
        link = await open_link(place, "token")
        async with anyio.create_task_group() as group:
            group.start_soon(link.serve, Answering())
            assert await link.call("server:join_office", {}) == (True, None)
            with pytest.raises(Unreachable, match="has not answered"):
                await link.call("server:leave_office", {})
            group.cancel_scope.cancel()
        await link.close()
    assert isinstance(link, Link)
    with pytest.raises(Unreachable, match="ended"):
        await link.call("server:leave_office", {})
    await asyncio.sleep(0)


PING, PONG, PART, END = b"\x89\x00", b"\x8a\x00", b"\x01\x00", b"\x00\x00"


@pytest.mark.parametrize("frames", [(PING, PING), (PONG, PONG), (PART, END)], ids=["pings", "pongs", "parts"])
async def test_frames_without_end_that_are_no_message_end_the_connection(frames: tuple[bytes, bytes]) -> None:
    first, more = frames

    async def floods(socket: ServerConnection) -> None:
        socket.transport.write(first + more * (4 * int(FRAMES_AT_ONCE)))

    async def does_not(socket: ServerConnection) -> None:
        socket.transport.write(first + more * 500 + (b"\x80\x011" if first == PART else b""))
        await socket.send("1")

    assert "the connection has ended" in await served(floods, Answering())
    assert "the server has ended the connection" in await served(does_not, Answering())


async def test_events_that_come_at_one_moment_wait_for_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Turnstile] = []
    passed = Turnstile.passed

    async def counted(self: Turnstile) -> None:
        turns.append(self)
        await passed(self)

    monkeypatch.setattr(Turnstile, "passed", counted)

    async def then(socket: ServerConnection) -> None:
        for number in range(10):
            await socket.send(f'42/smcp,{number}["client:get_tools",{{}}]')
        for _ in range(10):
            await socket.recv()
        await socket.send("1")

    await served(then, Answering())
    assert len(turns) == 10
    assert len(set(turns)) == 1


async def test_the_scheme_of_a_url_may_be_written_in_capitals() -> None:
    async def play(socket: ServerConnection) -> None:
        await lets_in(socket)
        await socket.wait_closed()

    async with playing(play) as place:
        await (await open_link(Place(place.url.replace("http", "HTTP"), "office"), "token")).close()
