"""Certificates of the bus: each daemon's own, issued by its identity key, and as authorities keys of paired daemons.

A paired daemon's key is pinned, so nothing more has to be exchanged: whoever knows the key can write down an authority
that has it. Such a root is trusted for its name and key alone; who has signed it does not matter, and nobody has.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sublet.daemon.peering.identity import Identity
from sublet.daemon.storage.files import make_private
from sublet.disk.durable import write_whole
from sublet.messaging.backends.zenoh_network import Tls
from sublet.protocol import ids

LEAF_DAYS: Final = 90
"""How long a certificate lasts; a new one is made whenever messaging begins."""
_CLOCK_SKEW: Final = timedelta(days=1)
_FOREVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def make_tls(directory: Path, identity: Identity) -> Tls:
    """Make a certificate of this daemon for the bus, and return where it, its key and the authorities are.

    Args:
        directory: private, for key files; what was there is replaced. Blocks on the disk.
        identity: issues the certificate.

    Raises:
        OSError: a file can't be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    tls = Tls(directory / "bus_authorities.pem", directory / "bus.pem", directory / "bus.key")
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(identity.key))
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"bus of {identity.node_id}")])
    leaf = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(_authority_name(identity.node_id))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=LEAF_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(identity.node_id)]), critical=False)
        .sign(issuer, None)
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    tls.key.unlink(missing_ok=True)
    make_private(tls.key, pem)
    write_whole(tls.certificate, leaf.public_bytes(serialization.Encoding.PEM))
    trust(tls, [bytes(identity.key.verify_key)])
    return tls


def trust(tls: Tls, keys: Iterable[bytes]) -> None:
    """Let daemons with these public keys in and nobody else, from the next opening of the bus on.

    Args:
        tls: of ``make_tls``.
        keys: raw Ed25519 public keys, of which there is at least one.

    Raises:
        OSError: the file can't be written.
    """
    write_whole(tls.authority, b"".join(_authority(key) for key in sorted(set(keys))))


def _authority(key: bytes) -> bytes:
    """Return a root certificate with a key; nobody looks at its signature."""
    name = _authority_name(ids.node_id(key))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(ed25519.Ed25519PublicKey.from_public_bytes(key))
        .serial_number(int.from_bytes(key[:8], "big") | 1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(_FOREVER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(_NOBODY, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _authority_name(node_id: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_id)])


_NOBODY: Final = ec.generate_private_key(ec.SECP256R1())
