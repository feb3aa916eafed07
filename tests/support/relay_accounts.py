"""Accounts of a relay as clients make them: keys, certificate requests, signed requests and statements of rooms."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from nacl.signing import SigningKey

from sublet.messaging.relay.authority import Authority
from sublet.messaging.relay.registry import Registry, Terms
from sublet.messaging.relay.store import RelayStore, SqliteRelayStore
from sublet.protocol.ezagent.ids import room_id
from sublet.protocol.ids import node_id
from sublet.protocol.relay.requests import NONCE_BYTES, AccountRequest, RequestAction, encode_request, sign_rotation
from sublet.protocol.relay.room_statement import RoomHomes, RoomStatement, make_statement

DOMAIN = "relay.test"
SALT = bytes(range(16))


@dataclass
class Client:
    """Somebody with a daemon's key and one for a certificate."""

    name: str
    key: SigningKey = field(default_factory=SigningKey.generate)
    tls: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    slot: str = ""

    @property
    def public(self) -> bytes:
        """The raw public key."""
        return bytes(self.key.verify_key)

    @property
    def node(self) -> str:
        """Node id of the key."""
        return node_id(self.public)

    @property
    def entity(self) -> str:
        """The person of the daemon."""
        return f"@human:{self.node}"

    def csr(self) -> str:
        """Return a certificate request."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "whoever")])
        made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(self.tls, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()

    def request(
        self,
        action: RequestAction = RequestAction.REGISTER,
        *,
        name: str | None = None,
        relay: str = DOMAIN,
        at: float | None = None,
        new: SigningKey | None = None,
        csr: str | None = None,
    ) -> bytes:
        """Return a signed request."""
        made = AccountRequest(
            action,
            relay,
            self.public,
            name or self.name,
            self.csr() if csr is None else csr,
            int(time.time() if at is None else at),
            os.urandom(NONCE_BYTES),
            bytes(new.verify_key) if new is not None else b"",
            sign_rotation(relay, self.public, new) if new is not None else b"",
        )
        return encode_request(made, self.key)

    def key_pem(self) -> bytes:
        """Return the key of the certificate in PEM."""
        return self.tls.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def room(self, at_ms: int = 1_700_000_000_000) -> str:
        """Return the id of a room that this one has opened."""
        return room_id(self.entity, at_ms, SALT)

    def states(
        self,
        room: str,
        members: Iterable[Client],
        version: int = 1,
        *,
        readers: Iterable[Client] = (),
        creator: Client | None = None,
        managers: Iterable[Client] | None = None,
        relay: str = DOMAIN,
    ) -> RoomStatement:
        """Return a statement of a room, signed by this one."""
        homes = RoomHomes(
            (creator or self).entity,
            SALT,
            frozenset(one.node for one in members),
            frozenset(one.node for one in readers),
            frozenset(one.node for one in ((creator or self,) if managers is None else managers)),
        )
        return make_statement(relay, room, homes, version, self.key)


def make_registry(
    directory: Path,
    *,
    slots: int = 8,
    store: RelayStore | None = None,
    is_open: bool = True,
    life: timedelta = timedelta(hours=1),
) -> Registry:
    """Return a registry with an authority of its own in a directory, which it makes where there is none."""
    if not (directory / "authority.pem").exists():
        directory.mkdir(parents=True, exist_ok=True)
        Authority.make(directory, DOMAIN).renew_server([DOMAIN, "127.0.0.1"])
    kept = store if store is not None else SqliteRelayStore(None)
    authority = Authority.load(directory)
    return Registry(DOMAIN, SigningKey(bytes(32)), authority, kept, slots, lambda: Terms(is_open, life))


def register(registry: Registry, client: Client) -> dict[str, object]:
    """Register a client, note its slot, and return what it was told."""
    told = dict(registry.answer(RequestAction.REGISTER, client.request()))
    client.slot = str(told["slot"])
    return dict(told)
