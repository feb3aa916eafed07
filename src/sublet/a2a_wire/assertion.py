"""Peer assertions: a short-lived EdDSA JWT by which one daemon shows another who is calling."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from nacl.signing import SigningKey

from sublet.protocol.signing import MAX_CLOCK_SKEW_SECONDS

ALGORITHM = "EdDSA"
ASSERTION_TYPE = "sublet-peer+jwt"
"""Domain tag in the ``typ`` header: no other token that this key signs is ever taken for a peer assertion."""
LIFETIME_SECONDS = 60
MAX_ASSERTION_CHARS = 2_048


class AssertionRejected(Exception):
    """The assertion is malformed, stale, for somebody else, or not signed by the pinned key."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What an assertion says before its signature is checked."""

    node_id: str
    key_fingerprint: str


@dataclass(frozen=True, slots=True)
class Assertion:
    """A verified assertion: its one-time id and when it was made, in Unix seconds."""

    token_id: str
    issued_at: int
    home: str = ""
    """What the caller says of its home; empty where it says nothing."""


def private_key(key: SigningKey) -> Ed25519PrivateKey:
    """Return ``key`` as the object that PyJWT and the SDK's card signer want."""
    return Ed25519PrivateKey.from_private_bytes(bytes(key))


def public_key(raw: bytes) -> Ed25519PublicKey:
    """Return a raw 32-byte Ed25519 public key as the object that PyJWT wants."""
    return Ed25519PublicKey.from_public_bytes(raw)


def make_assertion(
    key: SigningKey,
    *,
    node_id: str,
    fingerprint: str,
    audience: str,
    home: str = "",
    clock: Callable[[], float] = time.time,
) -> str:
    """Return an assertion for one request.

    Args:
        key: our Ed25519 key.
        node_id: our node id, the issuer.
        fingerprint: our key's fingerprint, so that a changed key is told from a forged token.
        audience: fingerprint of the key of the daemon that is called.
        home: what we say of our home.
        clock: Unix time in seconds.
    """
    now = int(clock())
    claims = {
        "iss": node_id,
        "aud": audience,
        "iat": now,
        "exp": now + LIFETIME_SECONDS,
        "jti": secrets.token_hex(16),
        **({"home": home} if home else {}),
    }
    headers = {"typ": ASSERTION_TYPE, "kid": fingerprint}
    return jwt.encode(claims, private_key(key), algorithm=ALGORITHM, headers=headers)


def read_claim(token: str) -> Claim | None:
    """Return what ``token`` claims, or None where it is no peer assertion at all.

    Raises:
        AssertionRejected: it is one by its type, but malformed.
    """
    if token.count(".") != 2 or len(token) > MAX_ASSERTION_CHARS:
        return None
    try:
        header = jwt.get_unverified_header(token)
        if header.get("typ") != ASSERTION_TYPE:
            return None
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    issuer, kid = claims.get("iss"), header.get("kid")
    if not isinstance(issuer, str) or not isinstance(kid, str):
        raise AssertionRejected("the peer assertion lacks its issuer or key id")
    return Claim(issuer, kid)


def verify_assertion(
    token: str, *, signer: bytes, audience: str, issuer: str, clock: Callable[[], float] = time.time
) -> Assertion:
    """Check ``token`` against the pinned key of its issuer.

    Args:
        token: the JWT.
        signer: raw public key pinned for ``issuer``.
        audience: our own key's fingerprint.
        issuer: node id that it must name.
        clock: Unix time in seconds.

    Raises:
        AssertionRejected: not signed by ``signer``, for another recipient, stale, or valid for too long.
    """
    try:
        claims = jwt.decode(
            token,
            public_key(signer),
            algorithms=[ALGORITHM],
            audience=audience,
            issuer=issuer,
            options={"require": ["iss", "aud", "iat", "exp", "jti"], "verify_exp": False, "verify_iat": False},
        )
    except (jwt.PyJWTError, ValueError) as error:
        raise AssertionRejected(f"the peer assertion is not valid: {error}") from None
    issued, expires, token_id = claims["iat"], claims["exp"], claims["jti"]
    if type(issued) is not int or type(expires) is not int or not isinstance(token_id, str) or len(token_id) > 64:
        raise AssertionRejected("the peer assertion has claims of the wrong type")
    # One clock and one skew for assertions and messages, so that both fail or work together.
    if expires - issued > LIFETIME_SECONDS or abs(clock() - issued) > MAX_CLOCK_SKEW_SECONDS:
        raise AssertionRejected("the peer assertion is too old, from the future, or valid for too long")
    home = claims.get("home")
    return Assertion(token_id, issued, home if isinstance(home, str) else "")
