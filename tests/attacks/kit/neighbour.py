"""Whoever reaches the port of a bus: strangers of several kinds, and paired daemons that mean harm.

A stranger speaks TLS by hand or by Zenoh's own client; a paired one has a real link and says what it likes over it.
"""

from __future__ import annotations

import json
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import zenoh
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.links.keys import LinkKeys, key_id, make_leaf
from sublet.messaging.links.links import Links
from sublet.protocol.ids import node_id
from support.daemons import Daemon

HOST = "127.0.0.1"
ANSWER_SECONDS = 10.0


def identity_key(home: Path) -> ed25519.Ed25519PrivateKey:
    """Return the identity key of the daemon with a ``SUBLET_HOME``."""
    return ed25519.Ed25519PrivateKey.from_private_bytes((home / "state/keys/identity.key").read_bytes())


def public(key: ed25519.Ed25519PrivateKey) -> bytes:
    """Return the raw public key."""
    return key.public_key().public_bytes_raw()


def bus_port(home: Path) -> int:
    """Return where the bus of the daemon with a ``SUBLET_HOME`` is."""
    return int(json.loads((home / "state/ports.json").read_text())["bus"])


class Neighbour(ZenohNetwork):
    """A link to the bus of a daemon, as another one that it is paired with, with all that Zenoh can do.

    Args:
        key: the identity key of the paired one.
        called: the public key of the daemon that is called.
        port: of its bus.
    """

    def __init__(self, key: ed25519.Ed25519PrivateKey, called: bytes, port: int) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="bus")
        place = Path(self._place.name)
        self.links = Links(LinkKeys(place / "keys", key), place / "s", None)
        self.links.trust([called])
        super().__init__(Endpoints())
        self.public, self.called = called, node_id(called)
        self.join({self.called: Endpoints((), tuple(self.links.call({called: [(HOST, port)]}).values()))})

    def close(self) -> None:
        super().close()
        self.links.close()
        self._place.cleanup()


class Declarer:
    """A link to the bus of a daemon over which Zenoh itself declares whatever it is told to.

    Args:
        key: the identity key of the paired one.
        called: the public key of the daemon that is called.
        port: of its bus.
    """

    def __init__(self, key: ed25519.Ed25519PrivateKey, called: bytes, port: int) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="bus")
        place = Path(self._place.name)
        self.links = Links(LinkKeys(place / "keys", key), place / "s", None)
        self.links.trust([called])
        config = zenoh.Config()
        values = {
            "mode": "peer",
            "listen/endpoints": [],
            "connect/endpoints": list(self.links.call({called: [(HOST, port)]}).values()),
            "connect/exit_on_failure": False,
            "connect/retry": {"period_init_ms": 100, "period_max_ms": 1_000, "period_increase_factor": 1.5},
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            "transport/shared_memory/enabled": False,
        }
        for name, value in values.items():
            config.insert_json5(name, json.dumps(value))
        self.session = zenoh.open(config)
        self._declared: list[object] = []

    def peers(self) -> int:
        """Return to how many others there is a link."""
        return len(self.session.info.peers_zid())

    def declare(self, kind: str, key: str) -> None:
        """Declare a ``subscriber``, a ``queryable`` or a ``token``."""
        if kind == "token":
            self._declared.append(self.session.liveliness().declare_token(key))
        elif kind == "subscriber":
            self._declared.append(self.session.declare_subscriber(key, lambda _: None))
        else:
            self._declared.append(self.session.declare_queryable(key, lambda _: None))

    def take_back(self) -> None:
        """Declare no longer what was declared."""
        for one in self._declared:
            one.undeclare()  # type: ignore[attr-defined]
        self._declared.clear()

    def close(self) -> None:
        """End the link."""
        self.session.close()  # type: ignore[no-untyped-call]
        self.links.close()
        self._place.cleanup()


def neighbour(of: Daemon, paired: Daemon) -> Neighbour:
    """Return a link to the bus of one daemon, made with the identity key of another that it is paired with."""
    return Neighbour(identity_key(paired.home), public(identity_key(of.home)), bus_port(of.home))


@dataclass(frozen=True, slots=True)
class Shown:
    """What a stranger gets of a handshake.

    Args:
        certificate: the server's, in DER.
        told: all bytes that came after the handshake.
        refused: the TLS error, where there was one.
    """

    certificate: bytes
    told: bytes
    refused: str


def shake(port: int, certificate: Path | None, say: bytes = b"") -> Shown:
    """Do a handshake as a client that verifies nothing, say something, and listen until the other side closes.

    Args:
        port: of a bus on this machine.
        certificate: what the client shows, in PEM with its key.
        say: first words.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    told, refused = b"", ""
    with (
        socket.create_connection((HOST, port), timeout=ANSWER_SECONDS) as raw,
        context.wrap_socket(raw) as tls,
    ):
        shown = tls.getpeercert(binary_form=True) or b""
        try:
            tls.sendall(say)
            while more := tls.recv(1 << 16):
                told += more
        except (ssl.SSLError, ConnectionError) as error:
            refused = str(getattr(error, "reason", None) or error)
        return Shown(shown, told, refused)


class Authority:
    """Somebody's own authority, which signs what it likes: as a public one might that OpenSSL or Zenoh trust.

    Args:
        key: signs; a new one by default.
        named_for: a public key whose authority it says to be.
    """

    def __init__(self, directory: Path, named_for: bytes | None = None) -> None:
        self.key = ed25519.Ed25519PrivateKey.generate()
        self._directory = directory
        self._named_for = named_for if named_for is not None else public(self.key)
        directory.mkdir(parents=True, exist_ok=True)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sublet bus")])
        now = datetime.now(UTC)
        self.root = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier(key_id(self._named_for)), critical=False)
            .sign(self.key, None)
            .public_bytes(serialization.Encoding.PEM)
        )

    def leaf(self) -> Path:
        """Return a certificate that looks as one of ``named_for`` does, with its key, as a file."""
        made = x509.load_pem_x509_certificates(make_leaf(self.key))[0]
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            x509.CertificateBuilder()
            .subject_name(made.subject)
            .issuer_name(made.issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(made.not_valid_before_utc)
            .not_valid_after(made.not_valid_after_utc)
        )
        for extension in made.extensions:
            value = extension.value
            if isinstance(value, x509.AuthorityKeyIdentifier):
                value = x509.AuthorityKeyIdentifier(key_id(self._named_for), None, None)
            builder = builder.add_extension(value, critical=extension.critical)
        path = self._directory / "leaf.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + builder.sign(self.key, None).public_bytes(serialization.Encoding.PEM))
        return path


def zenoh_links(endpoint: str, more: dict[str, object]) -> int:
    """Return how many links Zenoh's own client gets that connects to an endpoint, with more of its configuration."""
    config = zenoh.Config()
    values: dict[str, object] = {
        "mode": "client",
        "connect/endpoints": [endpoint],
        "connect/timeout_ms": 2_000,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        **more,
    }
    for name, value in values.items():
        config.insert_json5(name, json.dumps(value))
    with suppress(zenoh.ZError):
        session = zenoh.open(config)
        try:
            return len(session.info.peers_zid()) + len(session.info.routers_zid())
        finally:
            session.close()  # type: ignore[no-untyped-call]
    return 0


def zenoh_tls(certificate: Path, authority: Path) -> dict[str, object]:
    """Return Zenoh's configuration for a client that shows a certificate."""
    return {
        "transport/link/tls/root_ca_certificate": str(authority),
        "transport/link/tls/connect_certificate": str(certificate),
        "transport/link/tls/connect_private_key": str(certificate),
        "transport/link/tls/enable_mtls": True,
        "transport/link/tls/verify_name_on_connect": False,
    }


@contextmanager
def impostor(context: ssl.SSLContext, hear: Callable[[bytes], None]) -> Iterator[int]:
    """Serve TLS in the place of a daemon's bus, on a free port that is yielded, and tell whatever a caller says."""
    import threading

    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    made, _ = server.accept()
                except OSError:
                    return
                made.settimeout(ANSWER_SECONDS)
                with suppress(OSError), context.wrap_socket(made, server_side=True) as tls:
                    hear(b"")
                    while more := tls.recv(1 << 16):
                        hear(more)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(ANSWER_SECONDS)
