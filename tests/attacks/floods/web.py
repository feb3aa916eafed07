"""Floods of the web page, by a program of this machine that is not logged in."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator

from attacks.flood import Flood, Target
from attacks.kit.caller import caller

PATHS = (
    "/", "/main.js", "/app.css", "/nowhere", "/api/status", "/api/events/recent?limit=1000", "/api/delegations",
    "/api/rooms", "/%2e%2e/%2e%2e/etc/passwd", "/" + "a" * 8_000,
)  # fmt: skip


def _heads(host: str) -> Iterator[bytes]:
    for path in itertools.cycle(PATHS):
        cookie = f"sublet_{host.rpartition(':')[2]}={secrets.token_hex(32)}"
        head = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nX-Sublet-Key: {secrets.token_hex(32)}\r\n\r\n"
        )
        yield head.encode()


def _logins(host: str) -> Iterator[bytes]:
    """Yield logins with secrets that nobody gave out, and with bodies that are none."""
    bodies: tuple[object, ...] = (
        {"secret": "x" * 60_000},
        {"secret": "y"},
        [[]] * 20_000,
        {"secret": {"a": 1}},
        "z" * 60_000,
    )
    for body in itertools.cycle(bodies):
        raw = json.dumps(body).encode()
        head = (
            f"POST /api/login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Type: application/json\r\n"
        )
        yield f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw


def _again(words: Callable[[str], Iterator[bytes]]) -> Callable[[Target], Awaitable[None]]:
    async def run(target: Target) -> None:
        said = words(f"{target.web[0]}:{target.web[1]}")
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
                async with caller(target.web) as one:
                    for _ in range(50):
                        await one.say(next(said))
                        status, _ = await one.answer()
                        if not status:
                            break
            await asyncio.sleep(0)

    return run


_PAGE = ["web.routes:PageApi._logged_in", "daemon.net.http_connection:DeadlineProtocol.data_received"]

FLOODS = (
    Flood(name="web: questions without a session", who="stranger", covers=_PAGE, run=_again(_heads), waves=8),
    Flood(name="web: logins with wrong secrets", who="stranger", covers=_PAGE, run=_again(_logins), waves=8),
)
