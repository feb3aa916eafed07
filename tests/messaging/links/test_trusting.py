"""Contexts of links are made anew where other keys are trusted, or the certificate is another one, and only there."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519

from sublet.messaging.links.keys import RENEW_DAYS, LinkKeys

OWN, ONE, OTHER = (ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(3))


def public(key: ed25519.Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def test_contexts_stay_as_long_as_the_same_are_trusted(tmp_path: Path) -> None:
    keys = LinkKeys(tmp_path, OWN)
    keys.trust([public(ONE)])
    before = keys.server, keys.client
    keys.trust([public(ONE)])
    assert (keys.server, keys.client) == before
    keys.trust([public(ONE), public(OTHER)])
    assert keys.server is not before[0]
    assert len(keys.server.get_ca_certs()) == 2
    keys.trust([public(OTHER)])
    assert len(keys.client.get_ca_certs()) == 1


def test_a_new_certificate_is_taken_whoever_is_trusted(tmp_path: Path) -> None:
    keys = LinkKeys(tmp_path, OWN)
    keys.trust([public(ONE)])
    before, shown = keys.server, (tmp_path / "bus.pem").read_bytes()
    keys._made -= timedelta(days=RENEW_DAYS, seconds=1)
    keys.trust([public(ONE)])
    assert keys.server is not before
    assert (tmp_path / "bus.pem").read_bytes() != shown
