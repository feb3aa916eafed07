"""A certificate of the bus says which home its daemon runs from, and links are taken by what it says."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from sublet.messaging.links.keys import LinkKeys, home_of, make_leaf
from sublet.protocol.home_token import MAX_ELDERS, HomeToken, new_token

KEY = ed25519.Ed25519PrivateKey.from_private_bytes(b"k" * 32)


def der(pem: bytes) -> bytes:
    """Return the certificate in what ``make_leaf`` makes."""
    return x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERT") :]).public_bytes(serialization.Encoding.DER)


def test_a_certificate_says_what_its_daemon_says_of_its_home() -> None:
    home = HomeToken(new_token())
    for _ in range(MAX_ELDERS + 1):
        home = home.moved()
    assert home_of(der(make_leaf(KEY, home.said))) == home.said
    assert home_of(der(make_leaf(KEY))) == ""
    assert home_of(None) == home_of(b"no certificate") == ""


def test_a_certificate_that_says_so_is_believed_as_before(tmp_path: object) -> None:
    from pathlib import Path

    keys = LinkKeys(Path(str(tmp_path)), KEY, "ab")
    public = KEY.public_key().public_bytes_raw()
    keys.trust([public])
    shown = der((Path(str(tmp_path)) / "bus.pem").read_bytes())
    assert keys.peer_of(shown) == public
    assert home_of(shown) == "ab"
