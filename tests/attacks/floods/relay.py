"""Floods of a relay: of its registration port by strangers, and of its hub by clients that are registered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import zenoh

from attacks.flood import Flood, RelayPlace, Target
from sublet.messaging.backends.zenoh_config import make_config
from sublet.protocol.relay.requests import MAX_REQUEST_BYTES, RequestAction
from sublet.protocol.relay.slot_keys import Way, wire_key
from support.relay_accounts import Client

PAUSE: Final = 0.01
BURST: Final = 200
PAYLOAD: Final = bytes(60_000)
ROOM: Final = "01a2212b-1000-7167-9394-011daa8147aa"
PASS_SECONDS: Final = 1.0


def context_of(place: RelayPlace) -> ssl.SSLContext:
    """Return what knows the relay's own authority."""
    context = ssl.create_default_context(cafile=str(place.authority))
    context.check_hostname = False
    return context


def registered(place: RelayPlace, name: str) -> tuple[Client, Path]:
    """Register a client, and return it with a directory that holds its certificate and its key.

    Raises:
        PermissionError: the relay takes no more.
    """
    client = Client(name)
    with httpx.Client(base_url=place.desk, verify=context_of(place), trust_env=False, timeout=20) as http:
        answer = http.post(f"/v1/{RequestAction.REGISTER}", content=client.request())
    if answer.status_code != 200:
        raise PermissionError(answer.text)
    told = answer.json()
    client.slot = told["slot"]
    kept = Path(tempfile.mkdtemp(prefix="relay"))
    (kept / "client.pem").write_text(told["certificate"])
    (kept / "client.key").write_bytes(client.key_pem())
    return client, kept


def dialled(place: RelayPlace, kept: Path) -> zenoh.Session:
    """Open a session with the certificate of a client."""
    at = "transport/link/tls"
    values: dict[str, object] = {
        "mode": "client",
        "connect/endpoints": [place.hub],
        "connect/timeout_ms": 3_000,
        "connect/exit_on_failure": True,
        "listen/endpoints": [],
        "scouting/multicast/enabled": False,
        f"{at}/root_ca_certificate": str(place.authority),
        f"{at}/enable_mtls": True,
        f"{at}/connect_certificate": str(kept / "client.pem"),
        f"{at}/connect_private_key": str(kept / "client.key"),
    }
    return zenoh.open(make_config(values))


async def _requests(target: Target) -> None:
    """Register with signatures that are none, with bodies that are none, and ask for names that nobody has."""
    place = target.relay
    whole = Client("mallory").request()
    bodies = itertools.cycle(
        (whole, whole[:-4] + b"abcd", b"[" * MAX_REQUEST_BYTES, b'{"a":"' + b"x" * (MAX_REQUEST_BYTES - 10) + b'"}')
    )
    async with httpx.AsyncClient(base_url=place.desk, verify=context_of(place), trust_env=False, timeout=10) as http:
        for number in itertools.count():
            with contextlib.suppress(httpx.HTTPError):
                await http.post(f"/v1/{RequestAction.REGISTER}", content=next(bodies))
                await http.get(f"/v1/names/nobody-{number}")


async def _handshakes(target: Target) -> None:
    """Do handshakes with both ports, without a certificate, and say half of a head."""
    place = target.relay
    context = context_of(place)
    addresses = itertools.cycle((place.desk.removeprefix("https://"), place.hub.removeprefix("tls/")))
    while True:
        host, _, port = next(addresses).rpartition(":")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
            writer.write(b"POST /v1/register HTTP/1.1\r\nHost: x\r\n")
            await asyncio.sleep(0.2)
            writer.close()
        await asyncio.sleep(0)


def _client(work: Callable[[zenoh.Session, Client], None]) -> Callable[[Target], Awaitable[None]]:
    """Return the flood of a registered client, over its own link."""

    async def run(target: Target) -> None:
        client = Client("mallory", slot=target.relay.slot)
        session = await asyncio.to_thread(dialled, target.relay, target.relay.kept)
        try:
            while True:
                await asyncio.to_thread(work, session, client)
                await asyncio.sleep(0)
        finally:
            await asyncio.to_thread(session.close)

    return run


def _publishes(session: zenoh.Session, client: Client, count: int = BURST) -> None:
    """Publish below its own slot, in rooms in which it is not."""
    for number in range(count):
        session.put(wire_key(Way.UP, client.slot, f"ezagent/{ROOM[:-2]}{number % 100:02}/index/x/updates"), PAYLOAD)


def _asks(session: zenoh.Session, client: Client, count: int = BURST) -> None:
    """Ask for what nobody has, and tell the relay what it wants to hear, over and over."""
    wants = json.dumps({"contacts": [], "rooms": [f"{ROOM[:-2]}{number:02}" for number in range(90)]}).encode()
    for number in range(count):
        key, payload = (f"ezagent/{ROOM}/config/state", b"") if number % 2 else ("relay/attend", wants)
        session.get(wire_key(Way.UP, client.slot, key), _nothing, payload=payload, timeout=2)


def _nothing(_: Any) -> None:
    return


def _tokens(session: zenoh.Session, client: Client, count: int = BURST) -> None:
    """Announce presence in many rooms, and take it back."""
    keys = (f"ezagent/{ROOM[:-2]}{one % 100:02}/ephemeral/presence/+x{one}" for one in range(count))
    for token in [session.liveliness().declare_token(wire_key(Way.UP, client.slot, key)) for key in keys]:
        token.undeclare()  # type: ignore[no-untyped-call]


async def honest_pass(place: RelayPlace, session: zenoh.Session, client: Client) -> None:
    """Make each kind of request some times: a relay loads some of its code at the first of a kind."""
    target = SimpleNamespace(relay=place)
    for flood in (_requests, _handshakes):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(flood(target), PASS_SECONDS)  # type: ignore[arg-type]
    for work in (_publishes, _asks, _tokens):
        await asyncio.to_thread(work, session, client, 4)


_DESK = ["messaging.relay.desk:Desk._post", "messaging.relay.desk:Desk._name"]
_HUB = ["messaging.relay.hub:Hub._heard", "messaging.relay.hub:Hub._asked", "messaging.relay.hub:Hub._token"]

FLOODS = (
    Flood(name="relay: registrations", who="stranger", covers=_DESK, run=_requests, waves=8, victim="relay"),
    Flood(name="relay: handshakes", who="stranger", covers=_DESK, run=_handshakes, waves=32, victim="relay"),
    Flood(name="relay: what goes nowhere", who="client", covers=_HUB, run=_client(_publishes), victim="relay"),
    Flood(name="relay: questions", who="client", covers=_HUB, run=_client(_asks), victim="relay"),
    Flood(name="relay: tokens", who="client", covers=_HUB, run=_client(_tokens), victim="relay"),
)
