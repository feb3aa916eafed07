"""HTTP to one peer: pinned certificate, bounded answers, no redirects, no proxies, a fresh assertion per request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
from nacl.signing import SigningKey

from sublet import deadlines
from sublet.a2a_wire.assertion import make_assertion
from sublet.daemon.net.addresses import is_loopback
from sublet.protocol.bounded_json import check_json
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import fingerprint
from sublet.turns import Turns

CONNECT_SECONDS = 5.0
READ_SECONDS = 45.0
"""Longest wait for an answer."""
STREAM_SILENCE_SECONDS = 20.0
"""Longest silence of a stream: the server sends a comment every 15 s, so it is gone, or too busy, when none comes."""
WRITE_SECONDS = 10.0
MAX_RESPONSE_BYTES = 4 << 20
MAX_EVENT_BYTES = 2 << 20
MAX_DEPTH = 64
MAX_VALUES = 8_192
"""JSON values of an answer, or of one event. The SDK's reading of it costs some microseconds for each."""
MAX_CONNECTIONS = 128

TIMEOUT = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS, write=WRITE_SECONDS, pool=CONNECT_SECONDS)


class PeerAuth(httpx.Auth):
    """Signs every request as us, for one recipient.

    Args:
        key: our Ed25519 key.
        node_id: our node id.
        key_fingerprint: our key's fingerprint.
        audience: fingerprint of the peer's key.
        home: what we say of our home.
    """

    def __init__(self, key: SigningKey, node_id: str, key_fingerprint: str, audience: str, home: str = "") -> None:
        self._key = key
        self._node_id = node_id
        self._fingerprint = key_fingerprint
        self._audience = audience
        self._home = home

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add a one-time assertion."""
        assertion = make_assertion(
            self._key,
            node_id=self._node_id,
            fingerprint=self._fingerprint,
            audience=self._audience,
            home=self._home,
        )
        request.headers["Authorization"] = f"Bearer {assertion}"
        yield request


def open_client(url: str, certificate: str | None, auth: httpx.Auth | None) -> httpx.AsyncClient:
    """Return a client for the peer at ``url``.

    Args:
        url: its base URL.
        certificate: PEM of the only certificate it may show; None for a publicly certified name, or for http.
        auth: signs requests.

    Raises:
        SubletError: ``PEER_UNREACHABLE`` for http to another machine and for a certificate that can't be read.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise SubletError(
            LocalCode.PEER_UNREACHABLE,
            f"{url} is on another machine, and not encrypted",
            "Start that daemon with TLS, and pair again.",
        )
    transport = httpx.AsyncHTTPTransport(
        verify=_trusted(parts.scheme, certificate),
        trust_env=False,
        limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
    )
    return httpx.AsyncClient(
        transport=bounded_transport(transport),
        auth=auth,
        timeout=TIMEOUT,
        trust_env=False,
        follow_redirects=False,
        # A packed answer could unfold to any size, so none is asked for and none is taken.
        headers={"Accept-Encoding": "identity"},
    )


def bounded_transport(inner: httpx.AsyncHTTPTransport) -> httpx.AsyncBaseTransport:
    """Return a transport whose answers are bounded: the whole of one, or what comes between two events of a stream."""
    return _Bounded(inner)


def _trusted(scheme: str, certificate: str | None) -> ssl.SSLContext:
    """Return whom to trust; the authorities of the machine take a megabyte, and http asks for none."""
    if certificate:
        return pinned_context(certificate)
    return ssl.create_default_context() if scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def pinned_context(certificate: str) -> ssl.SSLContext:
    """Return a context that trusts exactly ``certificate`` (PEM), under whatever name it is reached.

    Raises:
        SubletError: ``PEER_UNREACHABLE`` where it can't be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificate)
    except (ssl.SSLError, ValueError) as error:
        raise SubletError(
            LocalCode.PEER_UNREACHABLE, "the peer's pinned certificate can't be read", "Pair with it again."
        ) from error
    return context


async def fetch_certificate(url: str, expected: str) -> str:
    """Return the PEM of the certificate that the server at ``url`` shows, having sent it nothing but a TLS hello.

    Args:
        url: an https URL.
        expected: SHA-256 fingerprint that the certificate (DER) must have.

    Raises:
        SubletError: ``PEER_UNREACHABLE``, or ``KEY_CHANGED`` where it shows another certificate.
    """
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the fingerprint below is what verifies it
    try:
        async with deadlines.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 443, ssl=context)
    except (OSError, TimeoutError) as error:
        raise SubletError(
            LocalCode.PEER_UNREACHABLE, f"can't connect to {url}: {error}", "Is the daemon there still running?"
        ) from error
    try:
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        shown = tls.getpeercert(binary_form=True)
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            async with deadlines.timeout(CONNECT_SECONDS):
                await writer.wait_closed()
    if shown is None or fingerprint(shown) != expected:
        raise SubletError(
            LocalCode.KEY_CHANGED,
            f"the server at {url} does not show the certificate that the link names",
            "Somebody may be in between. Make a new link, and check the address.",
        )
    return ssl.DER_cert_to_PEM_cert(shown)


class _Bounded(httpx.AsyncBaseTransport):
    def __init__(self, inner: httpx.AsyncHTTPTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await self._answer(request)
        except httpx.HTTPError:
            raise
        except Exception as error:  # such as an address that is none
            raise httpx.RemoteProtocolError(f"{type(error).__name__}: {error}", request=request) from error

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        # Nothing is ever followed, and httpx would look at the address all the same.
        response.headers.pop("location", None)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx.RemoteProtocolError("the answer is packed, which was not asked for", request=request)
        streaming = response.headers.get("content-type", "").startswith("text/event-stream")
        assert isinstance(response.stream, httpx.AsyncByteStream)
        stream = _BoundedStream(response.stream, request, per_event=streaming)
        if streaming or not response.is_success:
            response.stream = stream
            return response
        try:
            # Read here, since the libraries parse it without any bound.
            whole = b"".join([chunk async for chunk in stream])
        finally:
            await stream.aclose()
        _check(whole, request)
        response.stream = httpx.ByteStream(whole)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _check(text: bytes, request: httpx.Request) -> None:
    try:
        check_json(text, depth=MAX_DEPTH, values=MAX_VALUES)
        text.decode()
    except ValueError as error:
        raise httpx.RemoteProtocolError(f"the answer can't be taken: {error}", request=request) from None


class _BoundedStream(httpx.AsyncByteStream):
    """Counts what comes: the whole of an answer, or what comes between two ends of line of a stream."""

    def __init__(self, inner: httpx.AsyncByteStream, request: httpx.Request, *, per_event: bool) -> None:
        self._inner = inner
        self._request = request
        self._per_event = per_event

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks, turns = aiter(self._inner), Turns()
        count, begun, event = 0, bytearray(), bytearray()
        while (chunk := await self._next(chunks)) is not None:
            await turns.take()
            count += len(chunk)
            if not self._per_event:
                if count > MAX_RESPONSE_BYTES:
                    raise self._too_large()
                yield chunk
                continue
            begun += chunk
            if b"\n" in chunk:
                *lines, rest = bytes(begun).split(b"\n")
                begun = bytearray(rest)
                for line in lines:
                    # An event is parsed once its empty line has come, without any bound behind us.
                    if line in (b"", b"\r"):
                        _check(bytes(event), self._request)
                        event.clear()
                        await turns.take()
                    event += line
                    if len(event) > MAX_EVENT_BYTES:
                        raise self._too_large()
                    yield line + b"\n"
            if len(begun) > MAX_EVENT_BYTES:
                raise self._too_large()

    def _too_large(self) -> httpx.ReadError:
        return httpx.ReadError("the answer is larger than what is accepted", request=self._request)

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            async with deadlines.timeout(STREAM_SILENCE_SECONDS if self._per_event else None):
                return await anext(chunks, None)
        except TimeoutError:
            said = f"the stream was silent for {STREAM_SILENCE_SECONDS:.0f} s"
            raise httpx.ReadTimeout(said, request=self._request) from None

    async def aclose(self) -> None:
        await self._inner.aclose()
