"""HTTPS to public addresses only: every connection goes to an address that was looked up and checked (DESIGN 9.12)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import Final

import httpx

from sublet import deadlines
from sublet.a2a_client.peer_http import TIMEOUT, bounded_transport
from sublet.protocol.text import clean_line

RESOLVE_SECONDS: Final = 10.0


class PublicTransport(httpx.AsyncBaseTransport):
    """Looks a host up once per request, refuses one with any address that is not public, and connects to that address.

    Args:
        inner: makes the connections.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to a checked address, under the host's own name.

        Raises:
            httpx.ConnectError: the address is not https, can't be resolved, or is not public.
        """
        host = request.url.host
        if request.url.scheme != "https":
            raise httpx.ConnectError("only https is called", request=request)
        try:
            async with deadlines.timeout(RESOLVE_SECONDS):
                port = request.url.port or 443
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError) as error:
            raise httpx.ConnectError(f"{clean_line(host, 200)} can't be resolved", request=request) from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not addresses or not all(map(is_public, addresses)):
            raise httpx.ConnectError(f"{clean_line(host, 200)} has an address that is not public", request=request)
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=addresses[0])
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


def is_public(address: str) -> bool:
    """Tell whether an address is one of the public Internet: not this machine, a private network, or a link's own."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        # An IPv4 address in another form must not slip through.
        if found.ipv4_mapped is not None:
            return is_public(str(found.ipv4_mapped))
        if found.sixtofour is not None or found.teredo is not None or found in _NAT64:
            return False
    return found.is_global and not found.is_multicast


_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


def open_public() -> httpx.AsyncClient:
    """Return a client that reaches public addresses by https alone; no redirects, no proxies, bounded answers."""
    inner = httpx.AsyncHTTPTransport(verify=ssl.create_default_context(), trust_env=False)
    return httpx.AsyncClient(
        transport=PublicTransport(bounded_transport(inner)),
        timeout=TIMEOUT,
        trust_env=False,
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},
    )
