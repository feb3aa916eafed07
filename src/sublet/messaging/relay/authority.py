"""The relay's own authority: its root, the certificate that the relay shows, and those of its clients' slots.

Nothing in the router changes when somebody is admitted: it trusts this root, and rules by names stand from the start.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sublet.protocol.relay.errors import invalid

SKEW: Final = timedelta(minutes=5)
ROOT_LIFE: Final = timedelta(days=3650)
SERVER_LIFE: Final = timedelta(days=397)
RENEW_SERVER: Final = timedelta(days=30)
"""How long before its end the relay makes itself a new certificate when it starts."""
RELAY_NAME: Final = "relay"
"""Common name of the relay's certificate, which is the name of no slot."""
ROOT_FILE: Final = "authority.pem"
ROOT_KEY_FILE: Final = "authority.key"
SERVER_FILE: Final = "server.pem"
SERVER_KEY_FILE: Final = "server.key"
_PRIVATE: Final = 0o600


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate in PEM, and when it ends (Unix seconds)."""

    pem: str
    until: int


class Authority:
    """Issues certificates. Every method blocks for less than a millisecond, and ``load`` on the disk.

    Args:
        directory: where the root is.
        key: its key.
        root: its certificate.
    """

    def __init__(self, directory: Path, key: ec.EllipticCurvePrivateKey, root: x509.Certificate) -> None:
        self.directory = directory
        self._key = key
        self._root = root

    @classmethod
    def make(cls, directory: Path, domain: str) -> Authority:
        """Make the root of a new relay.

        Raises:
            OSError: a file can't be written; ``FileExistsError`` where there is a root already.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"relay {domain}"[:64])])
        now = datetime.now(UTC)
        root = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(now + ROOT_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write_key(directory / ROOT_KEY_FILE, key)
        (directory / ROOT_FILE).write_bytes(root.public_bytes(serialization.Encoding.PEM))
        return cls(directory, key, root)

    @classmethod
    def load(cls, directory: Path) -> Authority:
        """Return the root in a directory.

        Raises:
            OSError: a file can't be read.
            ValueError: it is damaged.
        """
        key = serialization.load_pem_private_key((directory / ROOT_KEY_FILE).read_bytes(), password=None)
        root = x509.load_pem_x509_certificate((directory / ROOT_FILE).read_bytes())
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != root.public_key():
            raise ValueError(f"{ROOT_KEY_FILE} is not the key of {ROOT_FILE}")
        return cls(directory, key, root)

    @property
    def file(self) -> Path:
        """The file of the root, by which clients know the relay."""
        return self.directory / ROOT_FILE

    @property
    def pem(self) -> str:
        """The root in PEM."""
        return self._root.public_bytes(serialization.Encoding.PEM).decode("ascii")

    def admit(self, key: ec.EllipticCurvePublicKey, common: str, life: timedelta) -> Issued:
        """Return a certificate for a key of a client.

        Args:
            key: as ``requested_key`` has found it.
            common: the common name, which is a slot's.
            life: how long it lasts.
        """
        until = datetime.now(UTC) + life
        return Issued(self._sign(key, common, life, (), ExtendedKeyUsageOID.CLIENT_AUTH), int(until.timestamp()))

    def renew_server(self, hosts: Sequence[str]) -> None:
        """Make the relay's own certificate where there is none, or where it ends soon. Blocks on the disk.

        Raises:
            OSError: a file can't be read or written.
            ValueError: one is damaged.
        """
        file, key_file = self.directory / SERVER_FILE, self.directory / SERVER_KEY_FILE
        if file.exists():
            shown = x509.load_pem_x509_certificate(file.read_bytes())
            if shown.issuer != self._root.subject or shown.not_valid_after_utc - datetime.now(UTC) > RENEW_SERVER:
                return  # a certificate that was given stays
        if not key_file.exists():
            _write_key(key_file, ec.generate_private_key(ec.SECP256R1()))
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{SERVER_KEY_FILE} is no key of ours")
        pem = self._sign(key.public_key(), RELAY_NAME, SERVER_LIFE, hosts, ExtendedKeyUsageOID.SERVER_AUTH)
        draft = file.with_name(f".{file.name}.new")
        draft.write_text(pem)
        draft.replace(file)

    def _sign(
        self,
        key: ec.EllipticCurvePublicKey,
        common: str,
        life: timedelta,
        hosts: Sequence[str],
        usage: x509.ObjectIdentifier,
    ) -> str:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)]))
            .issuer_name(self._root.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            names = [_host(one) for one in dict.fromkeys(hosts)]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode("ascii")


def requested_key(request: str) -> ec.EllipticCurvePublicKey:
    """Return the key that has signed a certificate request; what that says of its subject is ignored.

    Args:
        request: in PEM.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR``: the request is none, is not signed by its own key, or is of another kind.
    """
    try:
        csr = x509.load_pem_x509_csr(request.encode("ascii"))
        key = csr.public_key()
        signed = csr.is_signature_valid
    except Exception:  # the parser has many errors for what anybody can send; it is none of ours
        raise invalid("csr is no certificate request") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise invalid("csr has a key of another kind than P-256")
    if not signed:
        raise invalid("csr is not signed by its own key")
    return key


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
    with open(descriptor, "wb") as file:
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
