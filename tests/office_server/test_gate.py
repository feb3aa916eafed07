"""What stands before Socket.IO refuses with a body, and hands on what it has checked."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from sublet.office_server.gate import Gate
from sublet.office_server.lines import Line, Lines
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
        for refused in ('42/smcp,["x"]', "\x1e".join(["3"] * 17), "b64", ""):
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
