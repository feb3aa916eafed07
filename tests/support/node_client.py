"""A node of federation that shares no line with ours: written from docs/federation-wire.md alone.

It is made of the standard library and a library for X.509. Whatever it lacks, the page lacks too.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import ssl
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

SECONDS = 30
RECEIVE, HEALTH, PAGE = "/_cis/v1/event/receive", "/_cis/v1/health", "/_matrix/key/v2/server"


def canonical(value: object) -> bytes:
    """Return the form of RFC 8785 of what has no fractions and no letters beyond the first plane in its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def fingerprint(key: bytes) -> str:
    return "SHA256:" + b64(hashlib.sha256(key).digest()).rstrip("=")


def node_id(key: bytes) -> str:
    return "node-" + base64.b32encode(hashlib.sha256(key).digest()[:10]).decode().lower()


class NodeClient:
    """One node with one agent, ``me``.

    Args:
        name: what it calls itself.
        tls: whether nodes speak by https, or else plainly by signed requests.
    """

    def __init__(self, name: str, *, tls: bool = True) -> None:
        self.name, self.other = name, ""
        self._tls, self._url = tls, urlsplit("")
        self._key = Ed25519PrivateKey.generate()
        self.public = self._key.public_key().public_bytes_raw()
        self.events: list[dict[str, Any]] = []
        """What was sent to it, and is signed by the other node."""
        self.refused: list[str] = []
        """Why anything else was not taken."""
        self.url = ""

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.public)

    def meet(self, url: str, other: str) -> None:
        """Say where the other node is, and the fingerprint of its key."""
        self._url, self.other = urlsplit(url), other

    # Calling

    def call(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer.

        Raises:
            OSError: the other node is not reached, or cuts the connection.
            http.client.HTTPException: it says nothing.
        """
        assert self._url.hostname
        assert self._url.port
        if self._tls:
            secure = http.client.HTTPSConnection(self._url.hostname, self._url.port, timeout=10, context=self._client())
            secure.connect()
            assert isinstance(secure.sock, ssl.SSLSocket)
            shown = secure.sock.getpeercert(binary_form=True) or b""
            key = x509.load_der_x509_certificate(shown).public_key()
            assert isinstance(key, Ed25519PublicKey)
            assert fingerprint(key.public_bytes_raw()) == self.other
            connection: http.client.HTTPConnection = secure
        else:
            connection = http.client.HTTPConnection(self._url.hostname, self._url.port, timeout=10)
        try:
            proof = {} if self._tls else {"Authorization": self._proof(method, path, body)}
            connection.request(method, path, body or None, proof | (headers or {}))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def say(self, event: dict[str, Any], *, sender: str = "me", room: str = "", **changes: Any) -> tuple[int, Any]:
        """Send one event, and return status and receipt."""
        return self.call("POST", RECEIVE, self.envelope(event, sender=sender, room=room, **changes))

    def envelope(self, event: dict[str, Any], *, sender: str = "me", room: str = "", **changes: Any) -> bytes:
        """Return an event, signed; ``changes`` are made before."""
        document: dict[str, Any] = {
            "event_id": f"${uuid.uuid4()}",
            "room_id": room or f"!agent-broadcast:{self.name}",
            "sender": f"@{sender}:{self.name}",
            "type": event["event_type"],
            "content": event,
            "origin": self.name,
            "origin_server_ts": int(time.time() * 1000),
            "hashes": {"sha256": b64(hashlib.sha256(canonical(event)).digest())},
            "sublet": {"wire": 1, "node": node_id(self.public), "recipient": self.other},
        } | changes
        return canonical(document | self._signed(b"sublet/federation-event/1\n", document))

    def register(self) -> tuple[int, Any]:
        """Tell of the agent of this node."""
        event = {"agent_id": "me", "node_id": self.name, "runtime_type": "other", "capabilities": []}
        return self.say({"event_type": "io.cis.agent.registered", **event, "timestamp": _now()}, sender="node")

    def ask(self, agent: str, node: str, prompt: str) -> dict[str, Any]:
        """Have an agent do something, and return its result."""
        request_id = f"req-{uuid.uuid4()}"
        event = {
            "event_type": "io.cis.agent.task.request",
            "request_id": request_id,
            "from_agent": f"me@{self.name}",
            "to_agent": f"{agent}@{node}",
            "task": {"task_id": request_id, "prompt": prompt},
            "timeout_secs": 20,
            "timestamp": _now(),
        }
        status, receipt = self.say(event, room=f"!agent-federation-default:{node}")
        assert (status, receipt["accepted"]) == (200, True), receipt
        answer = self.wait_for(lambda one: one.get("request_id") == request_id and "result" in one)
        assert answer["to_agent"] == f"me@{self.name}"
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first event that is wanted, once it is here."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for one in [*self.events]:
                if wanted(one):
                    return one
            time.sleep(0.02)
        raise AssertionError(f"it did not come; there are {self.events}, and were refused: {self.refused}")

    # Being called

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve at ``url`` while the block runs."""
        client = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(200, client.page() if self.path == PAGE else b'{"status": "ok"}')

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                receipt = client.take(raw)
                self._answer(200 if receipt["accepted"] else 400, canonical(receipt))

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                return  # a connection was cut

        server = Server(("127.0.0.1", 0), Handler)
        if self._tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._load(context)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def take(self, raw: bytes) -> dict[str, Any]:
        """Take an envelope of the other node, and return the receipt."""
        document = json.loads(raw)
        signature = base64.b64decode(document.pop("signatures")[document["origin"]]["ed25519:0"])
        document.pop("unsigned", None)
        content = document["content"]
        try:
            self._others.verify(signature, b"sublet/federation-event/1\n" + canonical(document))
            assert document["hashes"]["sha256"] == b64(hashlib.sha256(canonical(content)).digest())
            assert document["sublet"]["recipient"] == self.fingerprint
            assert abs(time.time() - document["origin_server_ts"] / 1000) < 300
        except (InvalidSignature, AssertionError) as error:
            self.refused.append(repr(error))
            return {"accepted": False, "event_id": document["event_id"], "error": "INVALID_PAYLOAD"}
        self.events.extend(content.get("batch", [content]))
        return {"accepted": True, "event_id": document["event_id"], "known": True}

    def learn(self, page: dict[str, Any]) -> None:
        """Take the key of the other node from its page, which has to be signed by it."""
        key = base64.b64decode(page["verify_keys"]["ed25519:0"]["key"])
        assert fingerprint(key) == self.other
        self._others = Ed25519PublicKey.from_public_bytes(key)
        signature = base64.b64decode(page["signatures"][page["server_name"]]["ed25519:0"])
        said = {name: value for name, value in page.items() if name != "signatures"}
        self._others.verify(signature, b"sublet/federation-server/1\n" + canonical(said))

    def page(self) -> bytes:
        """Return the signed page of this node."""
        document: dict[str, Any] = {
            "server_name": self.name,
            "valid_until_ts": int((time.time() + 3600) * 1000),
            "verify_keys": {"ed25519:0": {"key": b64(self.public)}},
            "sublet": {"wire": 1, "namespaces": ["default"]},
        }
        return canonical(document | self._signed(b"sublet/federation-server/1\n", document))

    # Keys

    def _signed(self, domain: bytes, document: dict[str, Any]) -> dict[str, Any]:
        signature = self._key.sign(domain + canonical(document))
        return {"signatures": {self.name: {"ed25519:0": b64(signature)}}}

    def _proof(self, method: str, path: str, body: bytes) -> str:
        at, digest = int(time.time() * 1000), b64(hashlib.sha256(body).digest())
        said = {"at": at, "body": digest, "method": method, "path": path, "recipient": self.other}
        signature = self._key.sign(b"sublet/federation-request/1\n" + canonical(said))
        return f'Sublet-Node key="{b64(self.public)}", at="{at}", body="{digest}", sig="{b64(signature)}"'

    def _client(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        """Show a certificate as the page describes it."""
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another implementation")]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_id(self.public))]))
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .sign(self._key, None)
        )
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ) + certificate.public_bytes(serialization.Encoding.PEM)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "node.pem")
            path.write_bytes(pem)
            context.load_cert_chain(path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
