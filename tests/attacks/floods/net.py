"""Floods of HTTP, JSON, lines and INVITEs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sqlite3
import uuid
from collections.abc import Awaitable, Callable

import httpx

from attacks.flood import Flood, Target
from attacks.kit.caller import address_of, caller, many
from sublet.a2a_client.client import A2APeerLink
from sublet.a2a_wire.assertion import make_assertion
from sublet.daemon.peering.identity import load_identity
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.protocol.errors import SubletError
from sublet.protocol.ids import fingerprint
from support.worker import invite

CARD = b"/.well-known/agent-card.json"
Run = Callable[[Target], Awaitable[None]]
PAUSE = 0.01
"""Between two attempts that were refused before they cost anything, so that the attacker's own loop goes on."""


def _over(words: Callable[[], bytes], address: Callable[[Target], tuple[str, int] | str]) -> Run:
    """Return what connects, says ``words`` and waits for the end, again and again."""

    async def run(target: Target) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with caller(address(target)) as one:
                    await one.say(words())
                    await one.answer()
            await asyncio.sleep(0)

    return run


def _silent(words: bytes, count: int) -> Run:
    """Return what holds many connections to each listener that say ``words`` and no more."""

    async def hold(address: tuple[str, int] | str) -> None:
        while True:
            with contextlib.suppress(OSError):
                async with many(address, count, words):
                    await asyncio.sleep(1)
            await asyncio.sleep(PAUSE)

    async def run(target: Target) -> None:
        async with asyncio.TaskGroup() as group:
            for address in (address_of(target.a2a), target.web, str(target.agent_socket)):
                group.create_task(hold(address))

    return run


async def _blank_lines(target: Target) -> None:
    while True:
        with contextlib.suppress(OSError):
            async with caller(str(target.agent_socket)) as one:
                while not one.writer.is_closing():
                    await one.say(b"\n" * 65_536)
                    await asyncio.sleep(0)
        await asyncio.sleep(PAUSE)


async def _bad_lines(target: Target) -> None:
    while True:
        with contextlib.suppress(OSError):
            async with caller(str(target.agent_socket)) as one:
                for kind in itertools.cycle((b"[" * 60_000, b'{"a":' * 9_000, b"x" * 60_000)):
                    await one.say(kind + b"\n")
                    await one.reader.read(65_536)
        await asyncio.sleep(PAUSE)


def _peer(target: Target) -> tuple[PeerAddress, A2APeerLink, Callable[[], str]]:
    """Return the daemon as its paired peer knows it, that peer's outgoing side, and what signs a call of it."""
    state = target.peer_home / "state"
    identity = load_identity(state / "keys")
    with contextlib.closing(sqlite3.connect(f"file:{state / 'sublet.db'}?mode=ro", uri=True)) as database:
        key, certificate = database.execute("SELECT public_key, tls_certificate FROM peers").fetchone()
    link = A2APeerLink(identity.key, identity.node_id, identity.fingerprint)

    def sign() -> str:
        return make_assertion(
            identity.key, node_id=identity.node_id, fingerprint=identity.fingerprint, audience=fingerprint(key)
        )

    return PeerAddress("target", target.a2a, key, certificate), link, sign


async def _big_json(target: Target) -> None:
    _, link, sign = _peer(target)
    await link.aclose()
    deep = '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"parts":[{"data":%s}]}}}'
    bodies = itertools.cycle(
        (
            deep % ("[" + '{"":0},' * 1_300 + "0]"),
            deep % ('"' + "x" * 2_000_000 + '"'),
            deep % ("[" * 900_000),
            deep % ('["' + '","' * 600_000 + '"]'),
            deep % ('"' + '\\"' * 900_000 + '"'),
        )
    )
    async with httpx.AsyncClient(base_url=target.a2a, trust_env=False, timeout=20) as http:
        while True:
            headers = {"Authorization": f"Bearer {sign()}", "A2A-Version": "1.0", "Content-Type": "application/json"}
            with contextlib.suppress(httpx.HTTPError):
                await http.post("/", content=next(bodies).encode(), headers=headers)
            await asyncio.sleep(0)


async def _invites(target: Target) -> None:
    peer, link, _ = _peer(target)
    try:
        while True:
            with contextlib.suppress(SubletError):
                await link.invite(peer, invite(f"dlg_{uuid.uuid4().hex}", ttl_seconds=5))
            await asyncio.sleep(PAUSE)
    finally:
        await link.aclose()


def _get(n: int) -> Callable[[], bytes]:
    head = b"GET " + CARD + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % n
    return lambda: head + b'"' * n


def _unsigned() -> bytes:
    token = uuid.uuid4().hex
    body = json.dumps({"x": "y" * 60_000}).encode()
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


CHUNKS = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 40_000
LINES = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 7_000 + b"\r\n"
PIPELINE = (b"GET " + CARD + b" HTTP/1.1\r\nHost: localhost\r\n\r\n") * 500
SLOW = b"POST /sublet/v1/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000\r\n\r\n{"


def _a2a(target: Target) -> tuple[str, int]:
    return address_of(target.a2a)


_HTTP = ["daemon.net.http_connection:DeadlineProtocol.data_received", "daemon.net.http_connection:_Head.next_event"]
_SLOTS = ["daemon.net.slots:Slots.take", "daemon.net.http_connection:DeadlineProtocol.give_way"]
_MCP = [
    "mcp_server.connection:serve_connection",
    "mcp_server.relay_session:Lines.feed",
    "unix_sockets:UnixStream.receive",
]

FLOODS = (
    Flood(name="net: card requests with a body", who="stranger", covers=_HTTP, run=_over(_get(98_304), _a2a), waves=8),
    Flood(
        name="net: bodies in chunks of a byte", who="stranger", covers=_HTTP, run=_over(lambda: CHUNKS, _a2a), waves=8
    ),
    Flood(name="net: heads of many lines", who="stranger", covers=_HTTP, run=_over(lambda: LINES, _a2a), waves=8),
    Flood(
        name="net: pipelined card requests", who="stranger", covers=_HTTP, run=_over(lambda: PIPELINE, _a2a), waves=8
    ),
    Flood(
        name="net: unknown tokens",
        who="stranger",
        covers=["a2a_server.auth:Authenticator.identify", "a2a_server.auth:CallerGate.__call__"],
        run=_over(_unsigned, _a2a),
        waves=8,
    ),
    Flood(name="net: half-open connections", who="stranger", covers=_SLOTS, run=_silent(b"", 300)),
    Flood(name="net: slow bodies", who="stranger", covers=[*_SLOTS, "a2a_server.limits:_read"], run=_silent(SLOW, 300)),
    Flood(name="net: blank lines to the MCP socket", who="local agent", covers=_MCP, run=_blank_lines, waves=4),
    Flood(
        name="net: bad lines to the MCP socket",
        who="local agent",
        covers=[*_MCP, "mcp_server.connection:_message"],
        run=_bad_lines,
        waves=4,
    ),
    Flood(
        name="net: large JSON",
        who="peer",
        covers=[
            "a2a_server.json_rpc:WellFormed.__call__",
            "a2a_server.large_bodies:LargeBodies.take",
            "protocol.bounded_json:parse_json",
        ],
        run=_big_json,
        waves=48,
    ),
    Flood(
        name="net: INVITEs that no START follows",
        who="peer",
        covers=["daemon.working.executor:Executor.invite", "supervisor.slots:Slots.reserve"],
        run=_invites,
        waves=2,
    ),
)
