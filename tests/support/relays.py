"""A relay: a real Zenoh router in a process of its own, which can be killed and comes back where it was."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROUTER = """
import json, sys, zenoh
config = zenoh.Config()
for name, value in json.loads(sys.argv[1]).items():
    config.insert_json5(name, json.dumps(value))
session = zenoh.open(config)
print("ready", flush=True)
sys.stdin.read()
session.close()
"""
DAY = timedelta(days=1)


class Relay:
    """A router at one address, down at first.

    Args:
        endpoint: where it listens, as Zenoh writes it.
        prefix: runs it somewhere else, such as in a network namespace.
        tls: its certificate and key, for a ``tls/`` endpoint.
    """

    def __init__(self, endpoint: str, prefix: Sequence[str] = (), tls: tuple[Path, Path] | None = None) -> None:
        self.endpoint = endpoint
        self._prefix = prefix
        self._config: dict[str, object] = {
            "mode": "router",
            "listen/endpoints": [endpoint],
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
        }
        if tls is not None:
            self._config["transport/link/tls/listen_certificate"] = str(tls[0])
            self._config["transport/link/tls/listen_private_key"] = str(tls[1])
        self._process: subprocess.Popen[str] | None = None

    def up(self) -> None:
        """Start it, and return once it listens."""
        assert self._process is None
        self._process = subprocess.Popen(
            [*self._prefix, sys.executable, "-c", ROUTER, json.dumps(self._config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None


@contextmanager
def relay(endpoint: str, prefix: Sequence[str] = (), tls: tuple[Path, Path] | None = None) -> Iterator[Relay]:
    """Run a relay; see ``Relay``."""
    made = Relay(endpoint, prefix, tls)
    made.up()
    try:
        yield made
    finally:
        made.kill()


def make_certificate(directory: Path, address: str) -> tuple[Path, Path]:
    """Make a certificate for an IP address, which is its own authority; return where it and its key are."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "relay.pem", directory / "relay.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
