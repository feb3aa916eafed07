"""What stands before Socket.IO refuses with a body, and hands on what it has checked."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from sublet.office_server.gate import Gate
from sublet.office_server.lines import MAX_CARRIERS, Line, Lines
from sublet.office_server.web_socket import ABORT_KEY
from sublet.protocol.offices.version import parse_version

pytestmark = pytest.mark.anyio
QUERY = "EIO=4&transport=polling&a2c_version=0.4.0"


class Inner:
    """Keeps the bodies that it was given, and opens a session."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.bodies.append((await receive()).get("body"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'0{"sid":"s1"}'})


async def test_a_session_is_known_by_its_first_packet_and_its_bodies_are_checked() -> None:
    inner, lines = Inner(), Lines()
    transport = httpx.ASGITransport(app=Gate(inner, lines, parse_version("0.4.0")))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        url = f"/socket.io/?{QUERY}"
        assert (await client.post(f"{url}&sid=s1", content="3")).status_code == 400
        assert (await client.get(url)).status_code == 200
        assert lines.sessions() == ["s1"]
        assert (await client.post(f"{url}&sid=s1", content='40/smcp,{"token":"x"}')).status_code == 200
        for refused in ('42/smcp,["x"]', "\x1e".join(["3"] * 17), "b64", "", "2probe", "5"):
            assert (await client.post(f"{url}&sid=s1", content=refused)).status_code == 400
        assert inner.bodies[-1] == b'40/smcp,{"token":"x"}'
        line = lines.get("s1")
        assert isinstance(line, Line)
        line.become_known()
        assert (await client.post(f"{url}&sid=s1", content='42/smcp,["x"]')).status_code == 200


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (f"/elsewhere/?{QUERY}", 404),
        ("/socket.io/?EIO=4&transport=polling", 400),
        (f"/socket.io/?{QUERY}&j=1", 400),
        ("/socket.io/?" + "&".join(f"a{n}=1" for n in range(40)), 400),
    ],
)
async def test_what_is_refused_never_reaches_socket_io(url: str, status: int) -> None:
    inner = Inner()
    transport = httpx.ASGITransport(app=Gate(inner, Lines(), parse_version("0.4.0")))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        answer = await client.get(url)
    assert answer.status_code == status
    assert answer.json()["code"] == status
    assert inner.bodies == []


class Waiting:
    """Answers each request once it is let go."""

    def __init__(self) -> None:
        self.entered = 0
        self.let_go = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered += 1
        await self.let_go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def has(self, number: int) -> None:
        """Return once so many requests wait here."""
        with anyio.fail_after(10):
            while self.entered < number:
                await anyio.sleep(0)


class Saying:
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.says = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.says})


async def test_messages_that_leave_are_owed_no_longer_and_nothing_else_counts() -> None:
    inner, (lines, line) = Saying(), opened()
    transport = httpx.ASGITransport(app=Gate(inner, lines, parse_version("0.4.0")))
    for size in (2, 3):
        assert line.owe(size)
    owed = line.owed
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        for method, says in (("GET", b"6"), ("GET", b'"Invalid"'), ("GET", b"2"), ("GET", b""), ("POST", b"4x")):
            inner.says = says
            body = b"3" if method == "POST" else None
            answer = await client.request(method, f"/socket.io/?{QUERY}&sid=s1", content=body)
            assert answer.content == says
            assert line.owed == owed
        inner.says = b"4x\x1e2\x1e4yy"
        await client.get(f"/socket.io/?{QUERY}&sid=s1")
    assert line.owed == 0


def opened() -> tuple[Lines, Line]:
    """Return lines with one session, ``s1``."""
    lines, line = Lines(), Line()
    lines.opened("s1", line)
    return lines, line


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_session_has_one_request_of_a_method_at_a_time(method: str) -> None:
    inner, (lines, _) = Waiting(), opened()
    transport = httpx.ASGITransport(app=Gate(inner, lines, parse_version("0.4.0")))
    body = "3" if method == "POST" else None
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        url = f"/socket.io/?{QUERY}&sid=s1"
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.request(method, url, content=body))
            await inner.has(1)
            assert (await client.request(method, url, content=body)).status_code == 400
            assert inner.entered == 1
            inner.let_go.set()
        assert (await client.request(method, url, content=body)).status_code == 200


async def carry(gate: Gate, ended: list[str], name: str) -> list[Message]:
    """Bring a WebSocket for ``s1``, which notes under its name where it is ended; return what it is sent."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    query = QUERY.replace("polling", "websocket")
    await gate(
        {
            "type": "websocket",
            "path": "/socket.io/",
            "query_string": f"{query}&sid=s1".encode(),
            "headers": [],
            "state": {ABORT_KEY: lambda: ended.append(name)},
        },
        receive,
        send,
    )
    return sent


async def test_a_session_has_one_websocket_which_is_the_one_that_is_ended() -> None:
    inner, (lines, line) = Waiting(), opened()
    gate, ended = Gate(inner, lines, parse_version("0.4.0")), list[str]()
    async with anyio.create_task_group() as group:
        group.start_soon(carry, gate, ended, "first")
        await inner.has(1)
        assert (await carry(gate, ended, "second"))[0]["status"] == 400
        line.abort()
        assert ended == ["first"]
        inner.let_go.set()
    for _ in range(MAX_CARRIERS - 1):
        await carry(gate, ended, "later")
    assert inner.entered == MAX_CARRIERS
    assert (await carry(gate, ended, "one too many"))[0]["status"] == 400
    assert inner.entered == MAX_CARRIERS
