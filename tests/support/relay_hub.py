"""A relay's router and hub in this process, on real sockets, and clients that speak to it as daemons do, or others."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zenoh

from sublet.daemon.rooms.relay_desk import Admission, RelayRefused
from sublet.messaging.backends.zenoh_config import make_config
from sublet.messaging.relay.buckets import Rate
from sublet.messaging.relay.hub import Hub
from sublet.messaging.relay.registry import Registry
from sublet.messaging.relay.router import open_router
from sublet.messaging.relay.senders import Senders
from sublet.messaging.relay.store import SqliteRelayStore
from sublet.protocol.canonical import canonical_json
from sublet.protocol.relay.attendance import Attendance
from sublet.protocol.relay.errors import RelayRefusal
from sublet.protocol.relay.name_record import NameRecord, parse_name_record
from sublet.protocol.relay.requests import RequestAction
from sublet.protocol.relay.slot_keys import Way, plain_key, wire_key
from support.daemons import wait_for
from support.ports import free_port
from support.relay_accounts import Client, make_registry, register

PLENTY = Rate(1e9, 1e9)
SECONDS = 20
REMOTE = zenoh.Locality.REMOTE


@dataclass(frozen=True)
class LocalDesk:
    """``AsksRelay`` of a registry in this process, without a port."""

    registry: Registry

    async def domain(self) -> str:
        """``AsksRelay.domain``."""
        return self.registry.domain

    async def admit(self, action: RequestAction, request: bytes) -> Admission:
        """``AsksRelay.admit``."""
        try:
            told = self.registry.answer(action, request)
        except RelayRefusal as refusal:
            raise RelayRefused(str(refusal.code), refusal.message) from None
        record = parse_name_record(canonical_json(told["record"]), self.registry.public_key)
        expires = told["expires_at"]
        assert isinstance(expires, int)
        return Admission(record, self.registry.public_key, str(told["slot"]), str(told["certificate"]), expires)

    async def record(self, name: str) -> NameRecord:
        """``AsksRelay.record``."""
        return self.registry.lookup(name)


class Told:
    """A client that is linked, and what it has heard."""

    def __init__(self, running: RunningHub, client: Client, mode: str = "client") -> None:
        self.client = client
        self.heard: list[tuple[str, bytes]] = []
        self.tokens: list[tuple[str, bool]] = []
        self._kept: list[Any] = []
        self.session = running.dial(client, mode)

    def hear(self, pattern: str) -> None:
        """Hear what is published under a pattern, as it is on the wire."""

        def took(sample: zenoh.Sample) -> None:
            self.heard.append((str(sample.key_expr), sample.payload.to_bytes()))

        def told(sample: zenoh.Sample) -> None:
            self.tokens.append((str(sample.key_expr), sample.kind == zenoh.SampleKind.PUT))

        self._kept.append(self.session.declare_subscriber(pattern, took, allowed_origin=REMOTE))
        self._kept.append(self.session.liveliness().declare_subscriber(pattern, told, history=True))

    def serve(self, pattern: str, payload: bytes, times: int = 1) -> None:
        """Answer what is asked under a pattern."""

        def asked(query: zenoh.Query) -> None:
            for _ in range(times):
                query.reply(query.key_expr, payload)
            query.drop()  # type: ignore[no-untyped-call]

        self._kept.append(self.session.declare_queryable(pattern, asked, allowed_origin=REMOTE))

    def own(self) -> str:
        """Return the pattern of all that comes to our slot."""
        return f"{Way.DOWN}/{self.client.slot}/**"

    def put(self, key: str, payload: bytes, slot: str | None = None) -> None:
        """Publish below our slot, or somebody else's."""
        self.session.put(wire_key(Way.UP, slot or self.client.slot, key), payload)

    def ask(self, key: str, payload: bytes = b"", slot: str | None = None, seconds: float = SECONDS) -> list[bytes]:
        """Ask below our slot, or somebody else's."""
        wire = wire_key(Way.UP, slot or self.client.slot, key)
        replies = self.session.get(
            wire,
            payload=payload,
            timeout=seconds,
            consolidation=zenoh.ConsolidationMode.NONE,
            allowed_destination=REMOTE,
        )
        return [one.ok.payload.to_bytes() for one in replies if one.ok is not None]

    def control(self, key: str, payload: bytes) -> Any:
        """Tell the relay something, and return its answer."""
        (answer,) = self.ask(f"relay/{key}", payload)
        return json.loads(answer)

    def attend(self, rooms: list[str], contacts: list[Client]) -> None:
        """Say what we want to hear."""
        wants = Attendance(frozenset(one.node for one in contacts), frozenset(rooms))
        assert self.control("attend", wants.encode()) == {"ok": True}

    def announce(self, key: str, slot: str | None = None) -> None:
        """Announce a key."""
        self._kept.append(self.session.liveliness().declare_token(wire_key(Way.UP, slot or self.client.slot, key)))

    def keys(self) -> list[str]:
        """Return the keys of what has come, as daemons know them."""
        return [found[1] for wire, _ in self.heard if (found := plain_key(Way.DOWN, wire)) is not None]

    def close(self) -> None:
        """End the session."""
        self.session.close()  # type: ignore[no-untyped-call]


class RunningHub:
    """See the module."""

    def __init__(self, directory: Path, registry: Registry, rate: Rate) -> None:
        self.directory = directory
        self.registry = registry
        self.port = free_port()
        self.senders = Senders(rate)
        self.session = open_router(f"tls/127.0.0.1:{self.port}", directory, registry.slots.count)
        self.hub = Hub(self.session, registry, self.senders)
        self._lock = threading.Lock()
        self._told: list[Told] = []

    def admit(self, client: Client) -> Client:
        """Register a client, and keep its certificate."""
        told = register(self.registry, client)
        (self.directory / f"{client.slot}.pem").write_text(str(told["certificate"]))
        (self.directory / f"{client.slot}.key").write_bytes(client.key_pem())
        return client

    def dial(
        self, client: Client | None, mode: str = "client", files: tuple[Path, Path] | None = None
    ) -> zenoh.Session:
        """Open a session of a client.

        Raises:
            zenoh.ZError: it is not let in.
        """
        at = "transport/link/tls"
        values: dict[str, object] = {
            "mode": mode,
            "connect/endpoints": [f"tls/127.0.0.1:{self.port}"],
            "connect/timeout_ms": 3_000,
            "connect/exit_on_failure": True,
            "listen/endpoints": [],
            "scouting/multicast/enabled": False,
            f"{at}/root_ca_certificate": str(self.directory / "authority.pem"),
        }
        if client is not None and files is None:
            files = self.directory / f"{client.slot}.pem", self.directory / f"{client.slot}.key"
        if files is not None:
            values |= {
                f"{at}/enable_mtls": True,
                f"{at}/connect_certificate": str(files[0]),
                f"{at}/connect_private_key": str(files[1]),
            }
        return zenoh.open(make_config(values))

    def link(self, client: Client, mode: str = "client") -> Told:
        """Register a client, link it, and let it hear its own slot."""
        made = Told(self, self.admit(client), mode)
        self._told.append(made)
        made.hear(made.own())
        return made

    def room(self, opener: Told, members: list[Told]) -> str:
        """Return a room of these, which all have taken up."""
        everybody = [opener, *members]
        room = opener.client.room()
        statement = opener.client.states(room, [one.client for one in everybody])
        assert opener.control("room", statement.encode()) == {"ok": 1}
        for one in everybody:
            one.attend([room], [other.client for other in everybody if other is not one])
        return room

    def close(self) -> None:
        """End everything."""
        for one in self._told:
            one.close()
        self.hub.close()
        self.session.close()  # type: ignore[no-untyped-call]


@contextmanager
def running_hub(directory: Path, *, slots: int = 8, rate: Rate = PLENTY, **terms: Any) -> Iterator[RunningHub]:
    """Run a hub with a registry on a real store."""
    directory.mkdir(parents=True, exist_ok=True)
    store = SqliteRelayStore(directory / "relay.db")
    made = RunningHub(directory, make_registry(directory, slots=slots, store=store, **terms), rate)
    try:
        yield made
    finally:
        made.close()
        store.close()


def until(condition: Any, what: str) -> None:
    """Wait for a condition."""
    wait_for(condition, SECONDS, what)
