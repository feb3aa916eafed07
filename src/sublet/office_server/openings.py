"""How many new sessions may begin: of all addresses where nobody is known together, and of each where somebody is.

So who is in an office comes again from its address, whatever strangers do elsewhere. Weak: all programs of this machine
come from one address.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

import anyio

SESSIONS_PER_SECOND: Final = 100.0
SESSIONS_AT_ONCE: Final = 400.0
"""New sessions of all addresses together where nobody has shown a token, and of each where somebody has."""
STRANGERS_PER_SECOND: Final = 25.0
STRANGERS_AT_ONCE: Final = 100.0
"""New sessions of one address where nobody has shown a token."""
MAX_ADDRESSES: Final = 1_024
"""That are remembered, of either kind; the longest unused are forgotten."""
_NETWORK_BITS: Final = 64
"""Of an IPv6 address: whoever has one has them all."""


class _Bucket:
    """So many at once, and so many a second after that."""

    def __init__(self, at_once: float) -> None:
        self._left, self._at = at_once, anyio.current_time()

    def has(self, at_once: float, per_second: float) -> bool:
        now = anyio.current_time()
        passed, self._at = now - self._at, now
        self._left = min(at_once, self._left + passed * per_second)
        return self._left >= 1

    def take(self) -> None:
        self._left -= 1


class Openings:
    """Counts new sessions."""

    def __init__(self) -> None:
        self._all: _Bucket | None = None
        self._strange: OrderedDict[str, _Bucket] = OrderedDict()
        self._known: OrderedDict[str, _Bucket] = OrderedDict()

    def may_open(self, address: str) -> bool:
        """Count one more session from ``address``; False where it may not begin now."""
        place = _place(address)
        if (known := self._known.get(place)) is not None:
            return _taken((known, SESSIONS_AT_ONCE, SESSIONS_PER_SECOND))
        if self._all is None:
            self._all = _Bucket(SESSIONS_AT_ONCE)
        own = _used(self._strange, place, STRANGERS_AT_ONCE)
        return _taken(
            (own, STRANGERS_AT_ONCE, STRANGERS_PER_SECOND), (self._all, SESSIONS_AT_ONCE, SESSIONS_PER_SECOND)
        )

    def known(self, address: str) -> None:
        """Take note that somebody at ``address`` has shown a token."""
        place = _place(address)
        _used(self._known, place, SESSIONS_AT_ONCE)
        self._strange.pop(place, None)


def _taken(*buckets: tuple[_Bucket, float, float]) -> bool:
    """Take one of each bucket, where all of them have one."""
    if not all(bucket.has(at_once, per_second) for bucket, at_once, per_second in buckets):
        return False
    for bucket, *_ in buckets:
        bucket.take()
    return True


def _used(there: OrderedDict[str, _Bucket], place: str, at_once: float) -> _Bucket:
    """Return the bucket of a place, which is the last one to be forgotten now."""
    bucket = there.pop(place, None) or _Bucket(at_once)
    there[place] = bucket
    if len(there) > MAX_ADDRESSES:
        there.popitem(last=False)
    return bucket


def _place(address: str) -> str:
    """Return what sessions are counted by: an address, or a network that one machine may have."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(int(found) >> (128 - _NETWORK_BITS))
