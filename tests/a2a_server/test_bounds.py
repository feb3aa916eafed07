"""Small parts of the gate: nesting, host names, pending invites, remembered ends."""

from __future__ import annotations

import asyncio

import pytest

from sublet.a2a_server import ends, invites
from sublet.a2a_server.hosts import AllowedHosts
from sublet.a2a_server.json_rpc import MAX_DEPTH
from sublet.daemon.net.addresses import is_loopback, is_wildcard
from sublet.protocol.bounded_json import BadJson, Why, check_json

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("body", "deep"),
    [
        (b"[" * 48 + b"]" * 48, False),
        (b"[" * 49 + b"]" * 49, True),
        (b'{"a":' * 49, True),
        (b'"' + b"[" * 500 + b'"', False),
        (b'["\\"' + b"[" * 500 + b'"]', False),
        (b"[" + b"[]," * 500 + b"[]]", False),
        (b"]" * 100 + b"[" * 49, False),
    ],
)
def test_nesting(body: bytes, deep: bool) -> None:
    if not deep:
        check_json(body, depth=MAX_DEPTH)
        return
    with pytest.raises(BadJson) as refused:
        check_json(body, depth=MAX_DEPTH)
    assert refused.value.why is Why.TOO_DEEP


def test_hosts() -> None:
    hosts = AllowedHosts("192.0.2.7", "https://bob.example:8443/base")
    local = "10.0.0.1"
    for name in ("192.0.2.7:1", "bob.example", "BOB.example:8443", "10.0.0.1", "[::1]:80", "localhost"):
        assert hosts.allows_host(name, local)
    for name in ("192.0.2.8", "bob.example.evil", "bob.example:x", "user@bob.example", "bob.example/x", "", "[::1"):
        assert not hosts.allows_host(name, local)
    assert hosts.allows_origin("https://bob.example:8443", local, 1)
    assert hosts.allows_origin("http://localhost:1", local, 1)
    for origin in ("https://bob.example", "http://localhost:2", "null", "", "file://x", "https://bob.example:99999"):
        assert not hosts.allows_origin(origin, local, 1)


def test_kinds_of_addresses() -> None:
    assert [is_wildcard(host) for host in ("0.0.0.0", "::", "", "127.0.0.1", "bob")] == [True, True, True, False, False]
    assert [is_loopback(host) for host in ("127.9.9.9", "::1", "LocalHost", "10.0.0.1", "x")] == [
        True,
        True,
        True,
        False,
        False,
    ]


async def test_an_invite_that_is_never_answered_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invites, "MAX_WAIT_SECONDS", 0.01)
    pending = invites.PendingInvites()
    assert pending.begin("t")
    assert not pending.begin("t")
    assert not await pending.wait("t")
    assert pending.begin("t")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(pending.wait("t"))
        await asyncio.sleep(0)
        pending.answered("t")
    assert waiting.result()
    assert await pending.wait("unknown")


def test_ends_are_claimed_once_and_remembered_in_bounds() -> None:
    claimed = ends.Ends()
    assert claimed.claim("t")
    assert not claimed.claim("t")
    for number in range(10_000):
        claimed.claim(str(number))
    assert len(claimed._claimed) == ends._MAX_REMEMBERED
