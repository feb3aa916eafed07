"""The daemon at its relay: the registration and its renewal, and what the relay is told."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from sublet.daemon.rooms.relay_desk import RelayRefused, parse_answer
from sublet.daemon.rooms.relay_keeper import RelayKeeper
from sublet.daemon.rooms.relay_registration import RegistrationFiles
from sublet.messaging.relay.registry import Registry
from sublet.protocol.errors import LocalCode, SubletError
from support.relay_accounts import DOMAIN, Client, make_registry, register
from support.relay_hub import LocalDesk

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
