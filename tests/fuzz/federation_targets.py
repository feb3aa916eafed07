"""What other nodes say: envelopes and events, the page of a node, what is answered, addresses, federation.toml."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from nacl.public import Box
from nacl.signing import SigningKey

from fuzz.targets import _text, target
from sublet.federation import post, settings
from sublet.node_http.certificates import key_of
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.sealing import padding
from sublet.protocol.federation import addresses, envelope, events, relayed, request_proof
from sublet.protocol.federation.errors import TaskRefused

NOW = 1_800_000_000.0
PEER, OWN = SigningKey(b"a" * 32), SigningKey(b"b" * 32)
KEY = bytes(PEER.verify_key)
SEALS = relayed.RelaySeals(OWN)
SEALED = Box(PEER.to_curve25519_private_key(), OWN.verify_key.to_curve25519_public_key())
NONCE = b"n" * Box.NONCE_SIZE


@target(
    "federation_envelope",
    "protocol.federation.envelope:read_envelope",
    "protocol.federation.envelope:_parsed",
    raises=[TaskRefused],
)
def _envelope(data: bytes) -> None:
    envelope.read_envelope(data).verified(KEY, recipient="SHA256:" + "A" * 43, now=NOW)


@target("federation_page", "protocol.federation.envelope:read_server", raises=[TaskRefused])
def _page(data: bytes) -> None:
    envelope.read_server(data, KEY, now=NOW)


@target("federation_page_key", "protocol.federation.envelope:page_key", raises=[])
def _page_key(data: bytes) -> None:
    envelope.page_key(data)


@target("federation_proof", "protocol.federation.request_proof:read_proof", raises=[])
def _proof(data: bytes) -> None:
    found = request_proof.read_proof(_text(data))
    if found is not None:
        found.proves("GET", "/", found.fingerprint, NOW)
        found.covers(data)


@target("node_certificate", "node_http.certificates:key_of", raises=[])
def _certificate(data: bytes) -> None:
    key_of(data, datetime.fromtimestamp(NOW, UTC))


@target("node_listen", "federation.settings:split_listen", raises=[])
def _listen(data: bytes) -> None:
    settings.split_listen(_text(data))


@target("federation_event", "protocol.federation.events:read_event", raises=[TaskRefused])
def _event(data: bytes) -> None:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return
    found = events.read_event(content)
    assert events.read_event(events.event_content(found)) == found


@target("federation_receipt", raises=[])
def _receipt(data: bytes) -> None:
    post._receipt(data)


@target(
    "federation_relayed",
    "protocol.federation.relayed:read_question",
    "protocol.federation.relayed:read_answer",
    raises=[TaskRefused],
)
def _relayed(data: bytes) -> None:
    # Bytes of anybody's, and then the same sealed by the peer itself, so that what is in a box is read.
    for raw in (data, bytes(SEALED.encrypt(data, NONCE)), bytes(SEALED.encrypt(padding.pad(data), NONCE))):
        try:
            SEALS.read_question(KEY, "event", raw)
        except TaskRefused:
            SEALS.read_answer(KEY, "server", b"1" * 16, raw)


@target("federation_address", "protocol.federation.addresses:parse", raises=[SubletError])
def _address(data: bytes) -> None:
    found = addresses.AgentAddress.parse(_text(data))
    assert addresses.AgentAddress.parse(str(found)) == found


@target("federation_toml", "federation.settings:read_settings", raises=[SubletError])
def _toml(data: bytes) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / settings.FEDERATION_FILE
        path.write_bytes(data)
        settings.read_settings(path)
