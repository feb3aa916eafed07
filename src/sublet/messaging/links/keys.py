"""Who may have a link to the bus: daemons whose Ed25519 keys are pinned here, and nobody else.

Each daemon makes a certificate for a key of the day and signs it with its identity key; whoever has pinned that key
writes down an authority that holds it. All authorities have one constant name, so a handshake names no paired node: a
stranger who connects sees a hash of the key that it has called, and no list of authorities. The client shows its
certificate only after it has verified the server's, and TLS 1.3 encrypts it.

OpenSSL finds the authority and checks the chain. It is not believed: ``peer_of`` verifies the signature of a pinned
key over the certificate itself, so that a root that got among the authorities some other way opens nothing.
"""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, SignatureAlgorithmOID

LEAF_DAYS: Final = 90
"""How long a certificate lasts."""
RENEW_DAYS: Final = 30
"""When a daemon that runs on makes itself a new one."""
MAX_AUTHORITIES: Final = 1_024
"""Whose certificates are kept, of 600 bytes each; one that is not is made again when its key is pinned again."""
_CLOCK_SKEW: Final = timedelta(days=1)
_FOREVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sublet bus")])
_KEY_ID: Final = b"sublet bus authority\0"
_KEY_ID_BYTES: Final = 20
_HOME: Final = "sublet-home:"
_NOBODY: Final = ed25519.Ed25519PrivateKey.generate()
"""Signs authorities: OpenSSL trusts a root for its name and key, and looks at its signature's kind alone."""


class LinkKeys:
    """A daemon's certificate for the bus, and the keys that it has pinned. Thread-safe; making it blocks on the disk.

    Args:
        directory: private; holds the certificate and its key for OpenSSL, which reads them from files alone.
        identity: the daemon's identity key.
        home: what the daemon says of its home, by which a copy of it is known; empty for nothing.

    Raises:
        OSError: a file can't be written.
    """

    def __init__(self, directory: Path, identity: ed25519.Ed25519PrivateKey, home: str = "") -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = directory / "bus.pem"
        self._identity = identity
        self._home = home
        self._lock = threading.Lock()
        self._made = datetime.min.replace(tzinfo=UTC)
        self.trusted: frozenset[bytes] = frozenset()
        self._taken: frozenset[bytes] | None = None
        """Whom the contexts let in; None where they are made anew, whoever is trusted."""
        self.server: ssl.SSLContext
        self.client: ssl.SSLContext
        self._renew()
        self.trust(())

    def trust(self, keys: Iterable[bytes]) -> None:
        """Let daemons with these public keys in, and nobody else, from the next handshake on.

        Args:
            keys: raw Ed25519 public keys.

        Raises:
            OSError: a new certificate, for one that is old or unreadable, can't be written.
        """
        with self._lock:
            self.trusted = frozenset(keys)
            if datetime.now(UTC) - self._made > timedelta(days=RENEW_DAYS):
                self._renew()
            if self._taken == self.trusted:
                return  # to read the certificate and all authorities again takes milliseconds
            self._taken = None
            authorities = "".join(_authority(key) for key in sorted(self.trusted))
            try:
                self._make_contexts(authorities)
            except OSError:  # the file is gone or torn, and nobody needs the one that it was
                self._renew()
                self._make_contexts(authorities)
            self._taken = self.trusted

    def peer_of(self, certificate: bytes | None) -> bytes | None:
        """Return the pinned key that has signed a certificate; None where none of those that are pinned now has.

        Args:
            certificate: the peer's, in DER, as a finished handshake has proven it.
        """
        if certificate is None:
            return None
        try:
            leaf = x509.load_der_x509_certificate(certificate)
            named = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
            issuer = leaf.issuer
        except Exception:  # the parser has many errors for what anybody can send; it is none of ours
            return None
        now = datetime.now(UTC)
        if issuer != _NAME or leaf.signature_algorithm_oid != SignatureAlgorithmOID.ED25519:
            return None
        if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
            return None
        key = next((one for one in self.trusted if key_id(one) == named), None)
        if key is None:
            return None
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(key).verify(leaf.signature, leaf.tbs_certificate_bytes)
        except (InvalidSignature, ValueError):
            return None
        return key

    def _renew(self) -> None:
        self._taken = None
        self._made = datetime.now(UTC)
        self._file.unlink(missing_ok=True)
        self._file.touch(mode=0o600)
        self._file.write_bytes(make_leaf(self._identity, self._home))

    def _make_contexts(self, authorities: str) -> None:
        self.server = self._context(ssl.PROTOCOL_TLS_SERVER, authorities)
        self.client = self._context(ssl.PROTOCOL_TLS_CLIENT, authorities)

    def _context(self, side: int, authorities: str) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.check_hostname = False  # a key is pinned, wherever it is
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if side == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0  # who was removed resumes nothing
        context.load_cert_chain(self._file)
        if authorities:
            context.load_verify_locations(cadata=authorities)
        return context


def home_of(certificate: bytes | None) -> str:
    """Return what a certificate, which was proven, says of its daemon's home; empty where it says nothing."""
    if certificate is None:
        return ""
    try:
        leaf = x509.load_der_x509_certificate(certificate)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        said = names.get_values_for_type(x509.UniformResourceIdentifier)
    except Exception:  # the parser has many errors, and a certificate without it is one of an older version
        return ""
    return next((one.removeprefix(_HOME) for one in said[:1] if one.startswith(_HOME)), "")


def key_id(key: bytes) -> bytes:
    """Return by which name certificates call the authority with a public key: only who knows the key knows whose."""
    return hashlib.sha256(_KEY_ID + key).digest()[:_KEY_ID_BYTES]


def make_leaf(identity: ed25519.Ed25519PrivateKey, home: str = "") -> bytes:
    """Return a new key and a certificate for it, signed by an identity key, in PEM; it says which home it is of."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    said = [x509.UniformResourceIdentifier(_HOME + home)] if home else []
    builder = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=LEAF_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier(key_id(identity.public_key().public_bytes_raw()), None, None), critical=False
        )
    )
    if said:
        builder = builder.add_extension(x509.SubjectAlternativeName(said), critical=False)
    leaf = builder.sign(identity, None)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem + leaf.public_bytes(serialization.Encoding.PEM)


@lru_cache(MAX_AUTHORITIES)
def _authority(key: bytes) -> str:
    """Return a root certificate with a key, in PEM, found by its ``key_id`` among others of the same name."""
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(ed25519.Ed25519PublicKey.from_public_bytes(key))
        .serial_number(int.from_bytes(key[:8], "big") | 1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(_FOREVER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(key_id(key)), critical=False)
        .sign(_NOBODY, None)
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
