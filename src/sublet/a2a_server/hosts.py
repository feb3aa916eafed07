"""Which names a request may use for us, against DNS rebinding and foreign web pages (DESIGN 9.1)."""

from __future__ import annotations

from urllib.parse import urlsplit

from sublet.daemon.net.addresses import is_wildcard

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class AllowedHosts:
    """Loopback names, the address that the connection really came in on, and the configured public URL.

    A name that somebody else can point at us is in none of these, and an IP address can't be rebound.

    Args:
        listen_host: what the socket was bound to.
        public_url: the URL by which others reach us, where it is configured.
    """

    def __init__(self, listen_host: str, public_url: str | None) -> None:
        self._names = set(_LOOPBACK_NAMES)
        if not is_wildcard(listen_host):
            self._names.add(listen_host.lower())
        self._public = urlsplit(public_url) if public_url else None
        if self._public is not None and self._public.hostname:
            self._names.add(self._public.hostname.lower())

    def allows_host(self, header: str, local_address: str) -> bool:
        """Tell whether the ``Host`` header names us.

        Args:
            header: its value, with or without a port.
            local_address: IP address at our end of the connection.
        """
        name = _hostname(header)
        return name is not None and (name in self._names or name == local_address.lower())

    def allows_origin(self, header: str, local_address: str, local_port: int) -> bool:
        """Tell whether the ``Origin`` header is our own origin: the host must name us and the port be ours."""
        try:
            origin = urlsplit(header)
            port = origin.port
        except ValueError:
            return False
        if origin.scheme not in ("http", "https") or origin.hostname is None:
            return False
        standard = 443 if origin.scheme == "https" else 80
        ports = {local_port}
        if self._public is not None:
            ports.add(self._public.port or (443 if self._public.scheme == "https" else 80))
        return self.allows_host(origin.netloc, local_address) and (port or standard) in ports


def _hostname(netloc: str) -> str | None:
    try:
        parsed = urlsplit(f"//{netloc}")
        _ = parsed.port  # a port that is no number raises here
    except ValueError:
        return None
    if parsed.username is not None or parsed.path or parsed.query or parsed.fragment or not netloc.isprintable():
        return None
    return parsed.hostname
