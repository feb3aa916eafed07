"""The daemon at its relay: the registration and its renewal, and what the relay is told."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from nacl.signing import SigningKey

from sublet.daemon.rooms import relay_desk
from sublet.daemon.rooms.relay_desk import Admission, RelayDesk, RelayRefused, parse_answer
from sublet.daemon.rooms.relay_keeper import RelayKeeper, _listen
from sublet.daemon.rooms.relay_registration import RegistrationFiles
from sublet.messaging.relay.control import Control
from sublet.messaging.relay.registry import Registry
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.sealing.device_statements import add, prove_held
from sublet.protocol.ezagent.sealing.wire import NO_ID
from sublet.protocol.relay.attendance import Attendance
from sublet.protocol.relay.requests import RequestAction
from sublet.protocol.relay.room_statement import RoomHomes
from support.relay_accounts import DOMAIN, SALT, Client, make_registry, register
from support.relay_hub import LocalDesk
from support.rooms import local_entity, peers

pytestmark = pytest.mark.anyio
RELAY = "tls/relay.test:7448"


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return make_registry(tmp_path / "relay", life=timedelta(minutes=10))


def keeper(directory: Path, registry: Registry, clock: Clock | None = None, relay: str | None = RELAY) -> RelayKeeper:
    asked: list[tuple[str, Path | None]] = []

    def ask(url: str, authority: Path | None) -> LocalDesk:
        asked.append((url, authority))
        return LocalDesk(registry)

    made = RelayKeeper(SigningKey(bytes([7]) * 32), directory, relay, Path("/ca.pem"), list, ask, clock or Clock())
    made.asked = asked  # type: ignore[attr-defined]
    return made


async def test_a_name_is_registered_and_kept(tmp_path: Path, registry: Registry) -> None:
    made = keeper(tmp_path / "d", registry)
    assert await made.registration() is None
    assert "sublet register" in made.remarks()[0]
    told = await made.register("alice")
    assert (told.entity_id, told.slot, told.desk) == (f"@alice:{DOMAIN}", "s00000", "https://relay.test:7449")
    assert made.asked == [("https://relay.test:7449", Path("/ca.pem"))]  # type: ignore[attr-defined]
    assert made.remarks() == []
    again = keeper(tmp_path / "d", registry)
    assert await again.registration() == told
    assert (await again.record("alice")).node_id == registry.lookup("alice").node_id
    files = RegistrationFiles(tmp_path / "d")
    assert files.certificate.read_text().startswith("-----BEGIN CERTIFICATE")
    assert files.key.stat().st_mode & 0o077 == 0
    other = keeper(tmp_path / "d", registry, relay="tls/other.test:7448")
    assert await other.registration() is None, "it is of another relay"
    assert (await made.register("alice", "127.0.0.1:9")).desk == "https://127.0.0.1:9"


async def test_what_the_relay_refuses_is_told(tmp_path: Path, registry: Registry) -> None:
    register(registry, Client("bob"))
    made = keeper(tmp_path / "d", registry)
    with pytest.raises(RelayRefused) as refused:
        await made.register("bob")
    assert (refused.value.code, refused.value.said) == (LocalCode.CONFLICT, "ENTITY_EXISTS")
    with pytest.raises(SubletError) as none:
        await keeper(tmp_path / "e", registry, relay=None).register("alice")
    assert none.value.code is LocalCode.INVALID_ARGUMENT
    assert keeper(tmp_path / "e", registry, relay=None).remarks() == []


async def test_a_certificate_is_renewed_after_half_of_its_life_and_not_before(
    tmp_path: Path, registry: Registry
) -> None:
    clock = Clock()
    made = keeper(tmp_path / "d", registry, clock)
    told = await made.register("alice")
    await made._renew()
    assert await made.registration() == told
    clock.now += 301
    registry._clock = clock
    await made._renew()
    renewed = await made.registration()
    assert renewed is not None
    assert renewed.renewed_at > told.renewed_at
    assert (await made._uplink()) is not None
    registry.revoke("alice")
    clock.now += 301
    await made._renew()
    assert "has given no new certificate" in made.remarks()[0]
    clock.now += 3_600
    assert await made._uplink() is None, "the certificate has ended"


async def test_a_damaged_registration_is_none(tmp_path: Path, registry: Registry) -> None:
    made = keeper(tmp_path / "d", registry)
    await made.register("alice")
    (tmp_path / "d" / "registration.json").write_text(json.dumps({"relay": RELAY}))
    again = keeper(tmp_path / "d", registry)
    assert await again.registration() is None
    assert (await again.register("alice")).slot == "s00000"
    (tmp_path / "d" / "client.key").write_text("x")
    with pytest.raises(SubletError, match="can't be used"):
        await again.register("alice")


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"error": {}}', b'{"error": {"code": 1, "message": "x"}}', b"[" * 9_000]
)
def test_what_is_no_answer_of_a_relay_is_refused(raw: bytes) -> None:
    with pytest.raises(SubletError) as refused:
        parse_answer(raw)
    assert refused.value.code is LocalCode.UNAVAILABLE


def test_a_relays_words_are_cleaned() -> None:
    said = json.dumps({"error": {"code": "REVOKED", "message": "gone\x1b[31m\u202e" + "x" * 1_000}}).encode()
    with pytest.raises(RelayRefused) as refused:
        parse_answer(said)
    assert refused.value.code is LocalCode.POLICY_DENIED
    assert "\x1b" not in refused.value.message
    assert "\u202e" not in refused.value.message
    assert len(refused.value.message) < 300
    assert refused.value.from_peer


@dataclass(frozen=True)
class Changing(LocalDesk):
    """A relay that says something else than it did."""

    change: dict[str, Any]

    async def admit(self, action: RequestAction, request: bytes) -> Admission:
        """``AsksRelay.admit``."""
        return replace(await super().admit(action, request), **self.change)


@pytest.mark.parametrize("after", [-1, 91 * 86_400, 10**30])
async def test_a_certificate_with_an_end_that_is_none_is_not_kept(
    tmp_path: Path, registry: Registry, after: int
) -> None:
    made = keeper(tmp_path / "d", registry)
    told = await made.register("alice")
    made._ask = lambda *_: Changing(registry, {"expires_at": int(time.time()) + after})
    with pytest.raises(SubletError) as refused:
        await made.register("alice")
    assert refused.value.code is LocalCode.UNAVAILABLE
    assert await keeper(tmp_path / "d", registry).registration() == told
    path = tmp_path / "d" / "registration.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"expires_at": 10**30}))
    assert await keeper(tmp_path / "d", registry).registration() is None, "what no clock can show is damaged"


async def test_another_key_of_the_relay_is_not_taken_later(tmp_path: Path, registry: Registry) -> None:
    made = keeper(tmp_path / "d", registry)
    told = await made.register("alice")
    made._ask = lambda *_: Changing(registry, {"relay_key": bytes(32)})
    with pytest.raises(SubletError) as refused:
        await made.register("alice")
    assert refused.value.code is LocalCode.KEY_CHANGED
    assert await made.registration() == told
    asked: list[bytes | None] = []

    class Records(LocalDesk):
        async def record(self, name: str, relay_key: bytes | None = None) -> Any:
            asked.append(relay_key)

    made._ask = lambda *_: Records(registry)
    await made.record("alice")
    assert asked == [registry.public_key]


async def test_an_answer_that_comes_byte_by_byte_without_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_registry(tmp_path)
    monkeypatch.setattr(relay_desk, "ASK_SECONDS", 1.0)
    ended = asyncio.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        except OSError:
            writer.close()
            ended.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with anyio.fail_after(60):
            with pytest.raises(SubletError) as refused:
                await RelayDesk(f"https://127.0.0.1:{port}", tmp_path / "authority.pem").domain()
            await ended.wait()
    assert refused.value.code is LocalCode.UNAVAILABLE
    assert "in time" in refused.value.message


class Link:
    """A link to a relay's control that answers so many questions, and then none until ``left`` is set again."""

    def __init__(self, control: Control, node: str) -> None:
        self.control = control
        self.node = node
        self.left = 0
        self.epoch = 1
        self.asked: list[str] = []
        self.known = 0

    def relay_epoch(self) -> int:
        return self.epoch

    def known_at_relay(self) -> None:
        self.known += 1

    def ask_relay(self, key: str, payload: bytes, seconds: float) -> bytes | None:
        self.asked.append(key)
        self.left -= 1
        return self.control.answer(self.node, key, payload) if self.left >= 0 else None


class Rooms:
    """A service whose rooms are these."""

    def __init__(self, homes: dict[str, RoomHomes]) -> None:
        self.homes = homes

    async def on_engine(self, _: Any) -> Any:
        return frozenset(self.homes), self.homes


async def test_more_rooms_than_a_relay_takes_at_a_time_are_all_stated_and_we_are_linked_first(
    tmp_path: Path, registry: Registry
) -> None:
    made, bob = keeper(tmp_path / "d", registry), Client("bob")
    ann = Client("ann", SigningKey(bytes([7]) * 32))
    await made.register("ann")
    attending: dict[str, Attendance] = {}
    link = Link(Control(registry, attending, lambda _: None), ann.node)
    rooms = sorted(ann.room(at) for at in range(12))
    both = frozenset({ann.node, bob.node})
    homes = {room: RoomHomes(ann.entity, SALT, both, frozenset(), frozenset({ann.node})) for room in rooms}
    for room in rooms[:4]:  # which the relay refuses, each time
        homes[room] = replace(homes[room], creator=bob.entity)
    for passes in range(1, 40):
        link.left = 7
        await made._tell(link, Rooms(homes))  # type: ignore[arg-type]
        if passes == 1:
            assert made.linked
            assert attending[ann.node].rooms == frozenset(rooms)
        if len(registry.rooms) == len(rooms) - 4:
            break
    assert len(registry.rooms) == len(rooms) - 4
    link.left, link.asked = 7, []
    await made._tell(link, Rooms({room: homes[room] for room in rooms[4:]}))  # type: ignore[arg-type]
    assert link.asked == ["relay/attend"], "what the relay knows is not stated again"
    assert link.known == 2, "it is told whenever others can be asked over the relay: at first, and for other rooms"
    link.epoch += 1
    await made._tell(link, Rooms({room: homes[room] for room in rooms[4:6]}))  # type: ignore[arg-type]
    assert "relay/statement" in link.asked, "over another link it is"


def test_it_is_looked_at_who_is_in_a_room_once_somebody_has_another_device() -> None:
    (alice,), woken = peers("alice"), list[bool]()
    _listen(lambda: woken.append(True), alice.engine)
    bob, laptop = local_entity("bob", 2), SigningKey(b"\7" * 32)
    alice.engine.intake.learn(bob.record.encode())
    assert woken == []
    entity, key = bob.record.entity_id, bytes(laptop.verify_key)
    seal_key = bytes(laptop.verify_key.to_curve25519_public_key())
    said = add(bob.key, entity, NO_ID, key, "laptop", seal_key, prove_held(laptop, entity, seal_key))
    alice.engine.intake.learn(bob.record.with_statements((said,)).encode())
    assert woken == [True]
