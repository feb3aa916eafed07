"""Signed requests of accounts: what counts, and what is refused with which code."""

from __future__ import annotations

import json
import time

import pytest
from nacl.signing import SigningKey

from sublet.protocol.relay.errors import RelayCode, RelayRefusal
from sublet.protocol.relay.requests import (
    MAX_AGE_SECONDS,
    MAX_REQUEST_BYTES,
    AccountRequest,
    RequestAction,
    encode_request,
    parse_request,
)
from support.relay_accounts import DOMAIN, Client

REGISTER, ROTATE = RequestAction.REGISTER, RequestAction.ROTATE


def code_of(raw: bytes, action: RequestAction = REGISTER, relay: str = DOMAIN, now: float | None = None) -> RelayCode:
    with pytest.raises(RelayRefusal) as refused:
        parse_request(raw, action, relay, time.time() if now is None else now)
    return refused.value.code


def test_a_request_comes_back_as_it_was_signed() -> None:
    client = Client("alice")
    made = parse_request(client.request(), REGISTER, DOMAIN, time.time())
    assert (made.name, made.key, made.relay) == ("alice", client.public, DOMAIN)
    assert made.csr == client.csr() or made.csr.startswith("-----BEGIN")
    new = SigningKey.generate()
    assert parse_request(client.request(ROTATE, new=new), ROTATE, DOMAIN, time.time()).new_key == bytes(new.verify_key)


def test_it_counts_at_one_relay_for_one_thing_and_for_a_while() -> None:
    client = Client("alice")
    assert code_of(client.request(relay="other.test")) is RelayCode.DOMAIN_MISMATCH
    assert code_of(client.request(RequestAction.REVOKE)) is RelayCode.INVALID_SIGNATURE
    for seconds in (-MAX_AGE_SECONDS - 5, MAX_AGE_SECONDS + 5):
        assert code_of(client.request(at=1_000_000 + seconds), now=1_000_000) is RelayCode.INVALID_SIGNATURE
    parse_request(client.request(at=1_000_000), REGISTER, DOMAIN, 1_000_000 + MAX_AGE_SECONDS - 1)


@pytest.mark.parametrize("field", ["action", "relay", "key", "name", "csr", "at", "nonce"])
def test_nothing_of_it_can_be_changed(field: str) -> None:
    body = json.loads(Client("alice").request())
    other = json.loads(Client("bob").request(RequestAction.RENEW, relay="other.test", at=time.time() - 9))
    body["request"][field] = other["request"][field]
    assert code_of(json.dumps(body).encode()) in (RelayCode.INVALID_SIGNATURE, RelayCode.DOMAIN_MISMATCH)


def test_a_rotation_is_signed_by_the_new_key_too() -> None:
    client, new = Client("alice"), SigningKey.generate()
    body = json.loads(client.request(ROTATE, new=new))
    forged = AccountRequest(
        ROTATE,
        DOMAIN,
        client.public,
        "alice",
        client.csr(),
        int(time.time()),
        bytes(16),
        bytes(new.verify_key),
        bytes(64),
    )
    assert body["request"]["new_signature"]
    assert code_of(encode_request(forged, client.key), ROTATE) is RelayCode.INVALID_SIGNATURE


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"[]", b"{}", b'{"request": {}, "signature": ""}', b"\xff", b'{"request": 1, "signature": 2}'),
        *(b'{"request": {"action": "register"}, "signature": "AA=="}', b"[" * 100, b"x" * (MAX_REQUEST_BYTES + 1)),
    ],
)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    assert code_of(raw) is RelayCode.VALIDATION_ERROR
