"""Floods of the bus: by strangers at its port, and by a paired daemon over its link."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519
from nacl.signing import SigningKey

from attacks.flood import Flood, Target
from attacks.kit.neighbour import HOST, Neighbour, identity_key
from sublet.messaging.ports.network import Priority, Qos
from sublet.protocol.ezagent.envelope import seal

HOLD_SECONDS = 0.2
BURST = 200


def _port(target: Target) -> int:
    assert target.bus is not None, "the daemon has a bus"
    return int(target.bus.rpartition(":")[2])


async def handshakes(target: Target) -> None:
    """Do handshakes without a certificate, one after the other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(HOST, _port(target), ssl=context)
            await reader.read(1)
            writer.close()
        await asyncio.sleep(0)


async def silence(target: Target) -> None:
    """Open connections, say half a greeting, and hold them for a moment."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, _port(target))
            writer.write(b"\x16\x03\x01")
            await asyncio.sleep(HOLD_SECONDS)
            writer.close()


def _called(home: Path) -> bytes:
    """Return the pinned key of the daemon that a paired one's home knows."""
    with contextlib.closing(sqlite3.connect(f"file:{home}/state/sublet.db?mode=ro", uri=True)) as db:
        return bytes(db.execute("SELECT public_key FROM peers").fetchone()[0])


async def envelopes(target: Target) -> None:
    """Publish envelopes that nobody can verify, as fast as a link takes them."""
    key = identity_key(target.peer_home)
    link = await asyncio.to_thread(_link, target, key)
    signing = SigningKey(key.private_bytes_raw())
    try:
        for number in itertools.count():
            name = f"ezagent/01a2212b-1000-7167-9394-011daa8147{number % 100:02}/config"
            raw = seal(signing, f"@eve{number}:x", name, 1, bytes(20_000)).raw
            await asyncio.to_thread(_burst, link, f"{name}/updates", raw)
    finally:
        await asyncio.to_thread(link.close)


def _link(target: Target, key: ed25519.Ed25519PrivateKey) -> Neighbour:
    return Neighbour(key, _called(target.peer_home), _port(target))


def _burst(link: Neighbour, key: str, raw: bytes) -> None:
    for _ in range(BURST):
        link.publish(key, raw, b"", Qos(Priority.DATA, droppable=True))


FLOODS = [
    Flood(
        name="bus: handshakes of strangers",
        who="stranger",
        covers=["messaging.links.links:Links._accept", "messaging.links.links:Links._shaken"],
        run=handshakes,
        waves=8,
    ),
    Flood(
        name="bus: silent connections",
        who="stranger",
        covers=["messaging.links.links:Links._accept"],
        run=silence,
        waves=128,
    ),
    Flood(
        name="bus: envelopes of nobody",
        who="peer",
        covers=["messaging.running.arrivals:Arrivals.hear", "messaging.intake.waiting:WaitingForKeys.keep"],
        run=envelopes,
    ),
]
