"""Addresses of daemons, as they come from links, peers and configuration: taken apart strictly or refused."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from sublet.daemon.net.addresses import is_loopback
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern

MAX_URL_CHARS: Final = 1024
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST_NAME = Pattern(rf"(?:{_LABEL}\.)*{_LABEL}\Z")
_PATH = Pattern(r"(?:/[A-Za-z0-9._~-]*)*\Z")


def check_url(text: str) -> str:
    """Return the base URL of a daemon in its normal form, which ends in a slash.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for another scheme than http and https, user names, queries, odd characters,
            hosts that are no host name or address, the unspecified address, or http to another machine.
    """
    # Backslashes and controls are read differently by different parsers, so they go first.
    if len(text) > MAX_URL_CHARS or not text.isascii() or not text.isprintable() or set(text) & set(' "<>\\^`{|}%?#@'):
        raise _bad_url("it contains characters that have no place there, or is too long")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _bad_url("it is malformed") from None
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise _bad_url("it is not an http or https address")
    if port == 0 or parts.netloc.endswith(":"):
        raise _bad_url("its port is not between 1 and 65535")
    if not _PATH.match(parts.path) or ".." in parts.path or "//" in parts.path:
        raise _bad_url("its path is malformed")
    shown = _checked_host(host, bracketed="[" in parts.netloc)
    if parts.scheme == "http" and not is_loopback(host):
        raise _bad_url("it is another machine, but without TLS")
    return f"{parts.scheme}://{shown}:{port or _DEFAULT_PORTS[parts.scheme]}{parts.path.rstrip('/')}/"


def _checked_host(host: str, *, bracketed: bool) -> str:
    # The last label is no number, since resolvers read `127.1` and `2130706433` as addresses.
    named = not host.rpartition(".")[2].isdigit()
    if not bracketed and named and len(host) <= 253 and _HOST_NAME.match(host):
        return host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise _bad_url("its host is neither a name nor an address") from None
    if address.is_unspecified or address.is_multicast:
        raise _bad_url(f"{address} is not the address of one machine")
    if bracketed != (address.version == 6):
        raise _bad_url("its host is malformed")
    return f"[{address}]" if bracketed else str(address)


def _bad_url(why: str) -> SubletError:
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"the address of the daemon can't be used: {why}",
        "It looks like https://host:8642/ ; plain http works on this machine only.",
    )
