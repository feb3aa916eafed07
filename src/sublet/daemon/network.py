"""Small questions about hosts and addresses."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Tell whether ``host``, a literal address or ``localhost``, can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
