"""Where a stranger comes from: by what its connections and requests are counted."""

from __future__ import annotations

import ipaddress
from typing import Final

IPV6_NETWORK_BITS: Final = 64
"""Anybody who has one address of IPv6 has a whole network of so many bits."""


def source_of(host: str) -> str:
    """Return what counts as one source: an IPv4 address, a network of IPv6, or the text itself where it is neither."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_NETWORK_BITS), strict=False))
