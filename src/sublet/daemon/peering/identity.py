"""Who this daemon is: its Ed25519 key, its SSH host key and, where it listens beyond loopback, its certificate."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncssh
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from nacl.signing import SigningKey

from sublet.daemon.storage.private_files import make_private, read_private
from sublet.protocol import ids
from sublet.protocol.errors import LocalCode, SubletError

SEED_BYTES = 32
_SSH_KEY_HEAD = b"-----BEGIN OPENSSH PRIVATE KEY-----\n"
CERTIFICATE_DAYS = 3650
"""Long, since peers pin the certificate: a new one means pairing again."""
_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """The daemon's keys. ``key`` signs messages and cards, ``ssh_host_key`` is the data plane's.

    ``home`` is what it says of its home in what it signs, by which a copy of it is known; empty for nothing.
    """

    key: SigningKey
    ssh_host_key: asyncssh.SSHKey
    node_id: str
    fingerprint: str
    home: str = ""

    @property
    def public_key(self) -> bytes:
        """The raw 32-byte Ed25519 public key."""
        return bytes(self.key.verify_key)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The certificate and its key on disk; ``certificate_pem`` is what peers pin."""

    certificate: Path
    key: Path
    certificate_pem: str
    fingerprint: str


def load_identity(keys_dir: Path) -> Identity:
    """Return the daemon's identity, making it on the first start. Blocks on the disk.

    Args:
        keys_dir: private directory for key files; made if missing, its parent must exist.

    Raises:
        SubletError: ``UNAVAILABLE`` where a key file is open to others, has a wrong size or can't be read: a daemon
            that quietly made itself a new key would be a stranger to all its peers.
    """
    keys_dir.mkdir(mode=0o700, exist_ok=True)
    key = SigningKey(load_seed(keys_dir / "identity.key"))
    public = bytes(key.verify_key)
    return Identity(
        key=key,
        ssh_host_key=_ssh_host_key(keys_dir / "ssh_host_ed25519_key"),
        node_id=ids.node_id(public),
        fingerprint=ids.fingerprint(public),
    )


def load_tls(keys_dir: Path, hosts: Sequence[str]) -> TlsFiles:
    """Return the daemon's self-signed certificate, making it the first time. Blocks on the disk.

    A certificate that exists stays, also when ``hosts`` have changed: peers know it by its fingerprint, not its names.

    Args:
        keys_dir: private directory for key files.
        hosts: names or addresses by which the daemon is reached, for the subject alternative names.

    Raises:
        SubletError: ``UNAVAILABLE`` where a file is open to others, damaged or expired.
    """
    keys_dir.mkdir(mode=0o700, exist_ok=True)
    key_path, certificate_path = keys_dir / "tls.key", keys_dir / "tls.pem"
    key_pem = read_private(key_path)
    if key_pem is None:
        made = ec.generate_private_key(ec.SECP256R1())
        key_pem = make_private(
            key_path,
            made.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )
    try:
        private = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError):
        raise _damaged(key_path) from None
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise _damaged(key_path)
    pem = read_private(certificate_path)
    if pem is None:
        pem = make_private(certificate_path, _self_signed(private, hosts))
    certificate = _certificate(certificate_path, pem)
    if certificate.public_key() != private.public_key():
        raise _damaged(certificate_path)
    return TlsFiles(certificate_path, key_path, pem.decode("ascii"), tls_fingerprint(pem.decode("ascii")))


def tls_fingerprint(pem: str) -> str:
    """Return the fingerprint of a PEM certificate: SHA-256 of its DER form, in OpenSSH's ``SHA256:`` notation.

    Raises:
        ValueError: it is not exactly one certificate.
    """
    certificates = x509.load_pem_x509_certificates(pem.encode("ascii"))
    if len(certificates) != 1:
        raise ValueError("exactly one certificate is expected")
    return ids.fingerprint(certificates[0].public_bytes(serialization.Encoding.DER))


def load_seed(path: Path) -> bytes:
    """Return the seed of an Ed25519 key, making it the first time. Blocks on the disk.

    Raises:
        SubletError: ``UNAVAILABLE`` where the file is open to others, damaged, or can't be read.
    """
    seed = read_private(path)
    if seed is None:
        seed = make_private(path, bytes(SigningKey.generate()))
    if len(seed) != SEED_BYTES:
        raise _damaged(path)
    return seed


def _ssh_host_key(path: Path) -> asyncssh.SSHKey:
    raw = read_private(path)
    if raw is None:
        raw = make_private(path, asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    try:
        if not raw.startswith(_SSH_KEY_HEAD):
            raise ValueError("another kind of file")
        key = asyncssh.import_private_key(raw)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError):
        raise _damaged(path) from None
    if key.get_algorithm() != "ssh-ed25519":
        raise _damaged(path)
    return key


def _self_signed(key: ec.EllipticCurvePrivateKey, hosts: Sequence[str]) -> bytes:
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sublet daemon")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)]), False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(path: Path, pem: bytes) -> x509.Certificate:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise _damaged(path) from None
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"the certificate {path} expired at {certificate.not_valid_after_utc.isoformat()}",
            "Remove it and start again; peers that pinned it must pair again.",
        )
    return certificate


def _damaged(path: Path) -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"{path} is damaged or not a key of this daemon",
        "Restore it from a backup. Without one, remove it and start again: peers must then pair again.",
    )
