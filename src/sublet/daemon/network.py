"""Small questions about hosts and addresses."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress

_SIOCGIFADDR = 0x8915
_NAME_BYTES = 16
_ADDRESS_AT = 20
"""Where an IPv4 address stands in the ``ifreq`` that the kernel fills in: behind name, family and port."""


def is_loopback(host: str) -> bool:
    """Tell whether ``host``, a literal address or ``localhost``, can only be this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Tell whether ``host`` stands for every address of this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host == ""


def outward_address(*, ipv6: bool) -> str:
    """Return the address that this machine uses towards others, or one on loopback where it has no other."""
    # Addresses reserved for documentation (RFC 5737, RFC 3849): routed like any other, owned by nobody. Connecting a
    # UDP socket sends nothing.
    family, target = (socket.AF_INET6, "2001:db8::1") if ipv6 else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
        if ipv6:
            return "::1"
        # Without a way to everywhere there may still be neighbours.
        own = (_interface_address(probe, name) for _, name in socket.if_nameindex())
        return next((address for address in own if address and not is_loopback(address)), "127.0.0.1")


def _interface_address(probe: socket.socket, name: str) -> str | None:
    request = struct.pack("256s", name.encode()[: _NAME_BYTES - 1])
    try:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
    except OSError:
        return None  # it has none
    return socket.inet_ntoa(answer[_ADDRESS_AT : _ADDRESS_AT + 4])
