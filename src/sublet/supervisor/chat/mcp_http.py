"""HTTP for MCP servers elsewhere: answers are not packed, and bounded. The protocol's package bounds events alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

import httpx2

MAX_ANSWER_BYTES: Final = 8 << 20
"""Of an answer that is no stream of events."""
TIMEOUT_SECONDS: Final = 30.0


def bounded_client(headers: Mapping[str, str], read_seconds: float) -> httpx2.AsyncClient:
    """Return a client without redirects and proxies, whose answers can't fill memory.

    Args:
        headers: sent with each request.
        read_seconds: how long a server may say nothing.
    """
    return httpx2.AsyncClient(
        transport=_Bounded(httpx2.AsyncHTTPTransport(trust_env=False)),
        # A packed answer could unfold to any size, so none is asked for and none is taken.
        headers={**headers, "Accept-Encoding": "identity"},
        follow_redirects=False,
        trust_env=False,
        timeout=httpx2.Timeout(TIMEOUT_SECONDS, read=read_seconds),
    )


class _Bounded(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncHTTPTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is packed, which was not asked for", request=request)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream, request)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, request: httpx2.Request) -> None:
        self._inner = inner
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for chunk in self._inner:
            count += len(chunk)
            if count > MAX_ANSWER_BYTES:
                raise httpx2.ReadError("the answer is larger than what is accepted", request=self._request)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
