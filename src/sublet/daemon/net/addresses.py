"""Addresses of hosts: read, and judged by whether they can only be this machine or are all of its own."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from urllib.parse import urlsplit

from sublet.protocol.patterns import Pattern

_HOST_PORT = Pattern(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9.-]{1,253})):(?P<port>[0-9]{1,5})\Z")
_SIOCGIFADDR = 0x8915
_NAME_BYTES = 16
_ADDRESS_AT = 20
"""Where an IPv4 address stands in the ``ifreq`` that the kernel fills in: behind name, family and port."""


def parse_host_port(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, where an IPv6 host stands in brackets.

    Raises:
        ValueError: it has another form.
    """
    match = _HOST_PORT.match(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError("it is not HOST:PORT with a port up to 65535")
    return match["v6"] or match["host"], int(match["port"])


def is_loopback(host: str) -> bool:
    """Tell whether ``host``, a literal address or ``localhost``, can only be this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def on_loopback(url: str) -> bool:
    """Tell whether ``url`` can only lead to this machine."""
    return is_loopback(urlsplit(url).hostname or "")


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
