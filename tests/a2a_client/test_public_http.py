"""Outgoing https to agents that nobody has paired: public addresses only, checked after they were looked up."""

from __future__ import annotations

import socket

import httpx
import pytest
from a2a.types import AgentCard, AgentInterface

from sublet.a2a_client.public_http import PublicTransport, is_public
from sublet.a2a_client.text_link import interface
from sublet.protocol.errors import SubletError

pytestmark = pytest.mark.anyio
PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1", "0.0.0.0", "::1", "fe80::1%eth0",
     "fd00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "224.0.0.1", "ff02::1", "nonsense", ""],
)  # fmt: skip
async def test_what_is_not_public_is_told(address: str) -> None:
    assert not is_public(address)


async def test_what_is_public_is_told() -> None:
    assert all(map(is_public, [PUBLIC, "2606:4700::1111", f"::ffff:{PUBLIC}"]))


class Seen(httpx.AsyncBaseTransport):
    """Keeps what would have been sent."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(200, json={})


@pytest.mark.parametrize(
    ("url", "addresses", "sent"),
    [
        ("https://agent.example/x", [PUBLIC], True),
        ("https://agent.example/x", [PUBLIC, "10.0.0.1"], False),
        ("https://agent.example/x", ["127.0.0.1"], False),
        ("https://127.0.0.1/x", ["127.0.0.1"], False),
        ("http://agent.example/x", [PUBLIC], False),
    ],
)
async def test_a_request_goes_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch, url: str, addresses: list[str], sent: bool
) -> None:
    def resolve(host: str, port: int, *_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    seen = Seen()
    async with httpx.AsyncClient(transport=PublicTransport(seen)) as client:
        if not sent:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)
            assert seen.requests == []
            return
        await client.get(url)
    (request,) = seen.requests
    assert str(request.url) == f"https://{PUBLIC}/x"
    assert (request.headers["host"], request.extensions["sni_hostname"]) == ("agent.example", "agent.example")


async def test_a_card_does_not_send_us_elsewhere() -> None:
    def card(*urls: str) -> AgentCard:
        return AgentCard(supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC") for url in urls])

    assert (
        interface(card("https://b.example/", "https://a.example/rpc"), "https://a.example") == "https://a.example/rpc"
    )
    for elsewhere in (
        "https://b.example/",
        "http://a.example/",
        "https://a.example:8443/",
        "https://a.example@b.example/",
    ):
        with pytest.raises(SubletError, match="own host"):
            interface(card(elsewhere), "https://a.example")
