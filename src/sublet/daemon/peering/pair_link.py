"""Pairing links: taken apart strictly or refused."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from sublet.daemon.net.base_url import check_url
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import FINGERPRINT
from sublet.protocol.patterns import Pattern

MAX_LINK_CHARS = 4096
_PREFIX = "sublet+"
_VERSION = "1"
_TOKEN_PART = Pattern(r"[A-Za-z0-9_-]{8,64}\Z")
_DIGITS = Pattern(r"[0-9]{1,12}\Z")


@dataclass(frozen=True, slots=True)
class PairingLink:
    """What a pairing link says.

    The written form is ``sublet+https://HOST:PORT/#1.KEY.TLS.ID.SECRET.EXPIRES``: its characters mean nothing to a
    shell, and what follows ``#`` is never sent if somebody opens it in a browser.

    Args:
        a2a_url: where the daemon answers, as ``check_url`` returns it.
        fingerprint: of the daemon's key.
        tls_fingerprint: of its certificate; None for http, and where a proxy in front of it has a public one.
        token_id: names the one-time token.
        secret: the token; whoever knows it may pair.
        expires_at: Unix seconds.
    """

    a2a_url: str
    fingerprint: str
    tls_fingerprint: str | None
    token_id: str
    secret: str
    expires_at: int

    def __str__(self) -> str:
        tls = _short(self.tls_fingerprint) if self.tls_fingerprint else "-"
        parts = (_VERSION, _short(self.fingerprint), tls, self.token_id, self.secret, str(self.expires_at))
        return f"{_PREFIX}{self.a2a_url}#{'.'.join(parts)}"

    def __repr__(self) -> str:
        # A link in a traceback or a log line must not be usable.
        return f"PairingLink({self.a2a_url!r}, fingerprint={self.fingerprint!r})"


def parse_link(text: str) -> PairingLink:
    """Return what a pairing link says.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for anything that is not a link as ``sublet pair`` prints it.
    """
    text = text.strip()
    address, _, fragment = text.partition("#")
    parts = fragment.split(".")
    if len(text) > MAX_LINK_CHARS or not address.startswith(_PREFIX) or len(parts) != 6 or parts[0] != _VERSION:
        raise _bad_link("it does not have the form of one")
    _, key, tls, token_id, secret, expires = parts
    if not (_TOKEN_PART.match(token_id) and _TOKEN_PART.match(secret) and _DIGITS.match(expires)):
        raise _bad_link("its token is malformed")
    url = check_url(address.removeprefix(_PREFIX))
    if tls != "-" and not url.startswith("https:"):
        raise _bad_link("it pins a certificate for an address without TLS")
    return PairingLink(url, _long(key), None if tls == "-" else _long(tls), token_id, secret, int(expires))


def _short(fingerprint: str) -> str:
    """Return a fingerprint in base64url without its label, as links have it."""
    return fingerprint.removeprefix("SHA256:").replace("+", "-").replace("/", "_")


def _long(short: str) -> str:
    fingerprint = "SHA256:" + short.replace("-", "+").replace("_", "/")
    try:
        # Decoded too, since the last character has bits that must be zero.
        digest = base64.b64decode(fingerprint[7:] + "=", validate=True)
    except ValueError:  # also for what is not ASCII
        raise _bad_link("a fingerprint in it is malformed") from None
    if not FINGERPRINT.match(fingerprint) or base64.b64encode(digest).decode().rstrip("=") != fingerprint[7:]:
        raise _bad_link("a fingerprint in it is malformed")
    return fingerprint


def _bad_link(why: str) -> SubletError:
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"this is not a pairing link: {why}",
        "Copy the whole line that `sublet pair` prints.",
    )
