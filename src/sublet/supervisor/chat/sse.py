"""Server-sent events of a chat endpoint: httpx-sse reads them, out of bytes that are bounded before it sees them.

httpx-sse keeps what there is of an event for as long as the event goes on, decodes whatever character set the server
names, and drops an event that has no empty line behind it. So the stream it gets is one of our own: UTF-8, checked,
bounded for each event, in pieces that end with a line, and ended with an empty line.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

MAX_EVENT_BYTES: Final = 4 << 20
"""Of one event with all its lines, and the comments ahead of it; of one read more where events come in one piece."""
_PIECE_BYTES: Final = 64 << 10
"""What is collected of a line that comes in crumbs; each would be a text object of its own in httpx-sse."""


class MalformedReply(ValueError):
    """What the endpoint sent is no answer: its text says why, without quoting it."""


async def event_data(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """Yield the data of each event of ``chunks``; also of the last one where the stream ends within it.

    Events without data, comments, names and ids are left out.

    Raises:
        MalformedReply: an event is larger than ``MAX_EVENT_BYTES``, or the stream is not UTF-8.
    """
    # With the first reply, since the package loads httpx.
    import httpx
    from httpx_sse import EventSource

    seen = 0

    class Bounded(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal seen
            utf8 = codecs.getincrementaldecoder("utf-8")()
            held = bytearray()
            async for chunk in chunks:
                seen += len(chunk)
                if seen > MAX_EVENT_BYTES:
                    raise MalformedReply("an event of its stream is too large")
                _check(utf8, chunk)
                held += chunk
                if len(held) >= _PIECE_BYTES or b"\n" in chunk or b"\r" in chunk:
                    yield bytes(held)
                    held.clear()
            _check(utf8, b"", final=True)
            yield bytes(held) + b"\n\n"

    # No header of the server's: the character set that it names could be one that unpacks.
    response = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Bounded())
    async with aclosing(EventSource(response).aiter_sse()) as events:
        async for event in events:
            seen = 0
            if event.data:
                yield event.data


def _check(utf8: codecs.IncrementalDecoder, chunk: bytes, *, final: bool = False) -> None:
    try:
        utf8.decode(chunk, final)
    except UnicodeDecodeError:
        raise MalformedReply("its stream is not UTF-8") from None
