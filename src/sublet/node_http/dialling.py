"""Connects to nodes: to addresses that were looked up once and looked at, and by TLS only to the key that is listed.

Nothing is said to a node before its key is proven: httpcore is given a network whose streams are made here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import anyio
import httpcore

from sublet import deadlines
from sublet.node_http.certificates import key_of
from sublet.node_http.listed import Place
from sublet.protocol.ids import fingerprint
from sublet.protocol.text import clean_line

CONNECT_SECONDS: Final = 3.0
"""For looking a name up, for connecting and for the handshake, each."""
MAX_ADDRESSES: Final = 4
"""Of a host, that are tried; they share the time for connecting."""
Option = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class WrongNode(httpcore.ConnectError):
    """Whoever is there has not proven the key that is listed, or is not to be called at all."""


class Dialler(httpcore.AsyncNetworkBackend):
    """Implements httpcore's network for one node.

    Args:
        place: of the node.
        context: returns what TLS is begun with now.
        seen: is told the key that was proven.
    """

    def __init__(self, place: Place, context: Callable[[], ssl.SSLContext], seen: Callable[[bytes], object]) -> None:
        self._place = place
        self._context = context
        self._seen = seen
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Option] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers, of those that were looked at.

        Raises:
            WrongNode: no address may be called.
            httpcore.ConnectError: it is not reached.
            httpcore.ConnectTimeout: it is not reached in time.
        """
        addresses = (await _looked_up(host, port))[:MAX_ADDRESSES]
        for address in addresses:
            with suppress(*() if address == addresses[-1] else (httpcore.ConnectError, httpcore.ConnectTimeout)):
                stream = await self._inner.connect_tcp(address, port, CONNECT_SECONDS / len(addresses))
                return _Stream(stream, self._place, self._context, self._seen)
        raise AssertionError("the last address is reached, or raises")


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(
        self,
        inner: httpcore.AsyncNetworkStream,
        place: Place,
        context: Callable[[], ssl.SSLContext],
        seen: Callable[[bytes], object],
    ) -> None:
        self._inner = inner
        self._place = place
        self._context = context
        self._seen = seen

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            stream = await self._inner.start_tls(self._context(), server_hostname, CONNECT_SECONDS)
        except BaseException:  # cancelled too, which leaves the connection open otherwise
            with anyio.CancelScope(shield=True):
                await self._inner.aclose()
            raise
        shown = stream.get_extra_info("ssl_object").getpeercert(binary_form=True)
        key = key_of(shown, datetime.now(UTC))
        if key is None or fingerprint(key) != self._place.fingerprint:
            await stream.aclose()
            raise WrongNode("another key is there than the one that federation.toml lists")
        self._seen(key)
        return stream


async def _looked_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host, all of which may be called.

    Raises:
        WrongNode: it has one that may not be called, whichever it has besides.
        httpcore.ConnectError: it has none.
    """
    try:
        async with deadlines.timeout(CONNECT_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{clean_line(host, 200)} can't be looked up") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise httpcore.ConnectError(f"{clean_line(host, 200)} has no address")
    for address in addresses:
        if not may_be_called(host, address) or (_is_name(host) and is_ours(address)):
            raise WrongNode(f"{clean_line(host, 200)} has the address {address}, which is not called by a name")
    return addresses


def may_be_called(host: str, address: str) -> bool:
    """Tell whether a node may be called at an address that its host has.

    A person writes down which machine is meant, within private networks too. But a name leads to no program of this
    machine, to no address of a link alone and to none that is many: whoever answers for a name could choose these.

    Args:
        host: as federation.toml has it.
        address: as it was looked up.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_multicast or found.is_unspecified or found.is_link_local or found in _NOBODYS:
        return False
    if host.lower() == "localhost":
        return found.is_loopback
    return not (_is_name(host) and found.is_loopback)


def is_ours(address: str) -> bool:
    """Tell whether an address is one of this machine's: from there alone it would be called. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address.partition("%")[0])
    except OSError:
        return False


def _is_name(host: str) -> bool:
    """Tell whether a host is called by a name that others answer for."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower() != "localhost"
    return False


_NOBODYS: Final = ipaddress.ip_network("240.0.0.0/4")
