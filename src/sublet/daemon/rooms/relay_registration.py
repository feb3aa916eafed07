"""What a relay has given this daemon, on its disk: our name there, the slot, and the certificate with its key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sublet.disk.durable import write_durably
from sublet.disk.plain_file import read_plain
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.rooms.relay_desk import Admission

MAX_FILE_BYTES: Final = 64 << 10
_FILE: Final = "registration.json"
_CERTIFICATE: Final = "client.pem"
_KEY: Final = "client.key"

log = structlog.get_logger(__name__)


class Registration(BaseModel):
    """A name at a relay, with what it has given for it; times are Unix seconds."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    relay: str = Field(max_length=512)
    """Where it is: ``tls/HOST:PORT``."""
    desk: str = Field(max_length=512)
    """URL of its registration port."""
    domain: str = Field(max_length=255)
    name: str = Field(max_length=64)
    slot: str = Field(max_length=16)
    renewed_at: int
    expires_at: int

    @property
    def entity_id(self) -> str:
        """The name, as others call it."""
        return f"@{self.name}:{self.domain}"

    @property
    def due_at(self) -> float:
        """When it is renewed: after half of its life."""
        return self.renewed_at + (self.expires_at - self.renewed_at) / 2


@dataclass(frozen=True, slots=True)
class RegistrationFiles:
    """The files of a registration. Every method blocks on the disk.

    Args:
        directory: private; made where it is missing.
    """

    directory: Path

    @property
    def certificate(self) -> Path:
        """PEM file of the certificate."""
        return self.directory / _CERTIFICATE

    @property
    def key(self) -> Path:
        """PEM file of its key."""
        return self.directory / _KEY

    def read(self) -> Registration | None:
        """Return the registration; None where there is none, or it can't be read."""
        try:
            raw = read_plain(self.directory / _FILE, MAX_FILE_BYTES)
            return Registration.model_validate_json(raw)
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.warning("the registration at a relay can't be read; register again", reason=type(error).__name__)
            return None

    def request(self) -> str:
        """Return a certificate request in PEM, signed by the key of the certificate, which is made the first time.

        Raises:
            SubletError: ``UNAVAILABLE``: the key can't be written or read.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.key.exists():
                made = ec.generate_private_key(ec.SECP256R1())
                pem = made.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
                write_durably(self.key, pem)
            key = serialization.load_pem_private_key(read_plain(self.key, MAX_FILE_BYTES), password=None)
        except (OSError, ValueError) as error:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"{self.key} can't be used: {error}", "Remove it, and register again."
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise SubletError(LocalCode.UNAVAILABLE, f"{self.key} is no key of ours", "Remove it, and register again.")
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sublet daemon")])
        csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
        return csr.public_bytes(serialization.Encoding.PEM).decode("ascii")

    def keep(self, registration: Registration, admission: Admission) -> None:
        """Keep what a relay has given.

        Raises:
            SubletError: ``UNAVAILABLE``: it can't be written.
        """
        try:
            write_durably(self.certificate, admission.certificate.encode("ascii"))
            write_durably(self.directory / _FILE, registration.model_dump_json(indent=2).encode())
        except (OSError, UnicodeEncodeError) as error:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"what the relay has given can't be kept: {error}", "Check the disk."
            ) from None
