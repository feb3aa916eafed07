"""TLS between nodes, where each side proves the Ed25519 key that the other's federation.toml lists.

A certificate holds the node's own key and is signed by it; its issuer is called as the node id of that key. A handshake
of TLS 1.3 proves the key, and that is all that counts: whose the key is, federation.toml says. OpenSSL wants to verify
a client's certificate all the same, so each key that is known is written down as an authority of that name. Whoever
has another key does not get past the handshake.

Since the key counts and no certificate, a new one is as good as the old one: they are renewed while both are good, and
connections that are open stay.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID
from nacl.signing import SigningKey

from sublet.protocol.ids import node_id

CERTIFICATE_DAYS: Final = 30
"""How long a certificate lasts."""
RENEW_DAYS: Final = 10
"""When a daemon that runs on makes itself a new one."""
_CLOCK_SKEW: Final = timedelta(days=1)
_FOREVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_LONG_AGO: Final = datetime(2020, 1, 1, tzinfo=UTC)
_SUBJECT: Final = "sublet federation"
_NOBODY: Final = ed25519.Ed25519PrivateKey.generate()
"""Signs authorities: OpenSSL trusts a root for its name and key, and looks at its signature's kind alone."""


class NodeCertificates:
    """This node's certificate, and whom it lets in. Making and changing it blocks on the disk.

    Args:
        directory: private; holds the certificate with its key for the moment in which OpenSSL reads it.
        key: the node's own.

    Raises:
        OSError: nothing can be written there.
    """

    def __init__(self, directory: Path, key: SigningKey) -> None:
        self._directory = directory
        self._key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(key))
        self._made = _LONG_AGO
        self._pem = b""
        self._trusted: frozenset[bytes] = frozenset()
        self._lock = threading.Lock()
        self.server: ssl.SSLContext
        self.client: ssl.SSLContext
        self.trust((), datetime.now(UTC))

    def trust(self, keys: Iterable[bytes], now: datetime) -> bool:
        """Let nodes with these keys in, and nobody else, from the next handshake on; tell whether anything has changed.

        Args:
            keys: raw Ed25519 public keys.
            now: a certificate that is old by then is made anew.

        Raises:
            OSError: nothing can be written.
        """
        wanted = frozenset(keys)
        # A thread whose caller was cancelled goes on: the next one waits for it, and has the last word.
        with self._lock:
            old = now - self._made > timedelta(days=RENEW_DAYS)
            if wanted == self._trusted and not old:
                return False
            pem = make_certificate(self._key, now) if old else self._pem
            authorities = "".join(_authority(key) for key in sorted(wanted))
            # Handshakes go on meanwhile: they see a context once it is whole, or the one of before.
            server = self._context(ssl.PROTOCOL_TLS_SERVER, pem)
            server.num_tickets = 0  # who was removed resumes nothing
            server.verify_mode = ssl.CERT_REQUIRED
            if authorities:
                server.load_verify_locations(cadata=authorities)
            if old:
                client = self._context(ssl.PROTOCOL_TLS_CLIENT, pem)
                client.verify_mode = ssl.CERT_NONE  # ``key_of`` tells whose it is, before anything is said
                self.client, self._pem, self._made = client, pem, now
            self.server, self._trusted = server, wanted
            return True

    def _context(self, side: int, pem: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.check_hostname = False  # a key is pinned, wherever it is
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._directory.mkdir(mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="node-", suffix=".pem", dir=self._directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(pem)
            context.load_cert_chain(name)
        finally:
            Path(name).unlink()
        return context


def make_certificate(key: ed25519.Ed25519PrivateKey, now: datetime) -> bytes:
    """Return a key and a new certificate for it, in PEM."""
    public = key.public_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(_SUBJECT))
        .issuer_name(_named(node_id(public.public_bytes_raw())))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, None)
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem + certificate.public_bytes(serialization.Encoding.PEM)


def key_of(certificate: bytes | None, now: datetime) -> bytes | None:
    """Return the raw Ed25519 key that a certificate is for; None where it has another kind, or is not valid now.

    Args:
        certificate: the peer's, in DER, whose key a finished handshake has proven.
        now: by the clock of this machine.
    """
    if certificate is None:
        return None
    try:
        found = x509.load_der_x509_certificate(certificate)
        key = found.public_key()
        valid = found.not_valid_before_utc <= now <= found.not_valid_after_utc
    except Exception:  # the parser has many errors for what anybody can send; it is none of ours
        return None
    return key.public_bytes_raw() if valid and isinstance(key, ed25519.Ed25519PublicKey) else None


def _authority(key: bytes) -> str:
    """Return a root certificate with a key, found by the name of its node id, in PEM."""
    name = _named(node_id(key))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(ed25519.Ed25519PublicKey.from_public_bytes(key))
        .serial_number(int.from_bytes(key[:8], "big") | 1)
        .not_valid_before(_LONG_AGO)
        .not_valid_after(_FOREVER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(_NOBODY, None)
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
