"""Asks a chat model on an OpenAI-compatible endpoint: streaming, bounded, and again where that is safe.

An answer acts only once it is whole, so that asking again after any failure changes nothing but the bill.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from sublet import deadlines
from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean_line
from sublet.supervisor.chat.reply import Reply, ReplyBuilder, read_whole
from sublet.supervisor.chat.sse import MalformedReply, event_data
from sublet.supervisor.model_config import ModelConfig

if TYPE_CHECKING:
    import httpx

MAX_TRIES: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 20.0
SILENCE_SECONDS: Final = 180.0
"""How long the endpoint may say nothing, before its answer and within it."""
MAX_REPLY_SECONDS: Final = 1_800.0
MAX_REPLY_BYTES: Final = 64 << 20
MAX_ERROR_BYTES: Final = 64 << 10
_AGAIN: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_CONTEXT_WORDS: Final = ("context_length", "context length", "maximum context", "too many tokens", "prompt is too long")

_FORMAT_STATUSES: Final = frozenset({400, 404, 415, 422, 501})
_FORMAT_WORDS: Final = ("response_format", "json_schema", "json schema", "json mode", "structured output", "grammar")

Message = dict[str, JsonValue]


class EndpointFailed(Exception):
    """There is no answer, and asking again would not help; its text says why."""


class ContextTooLong(EndpointFailed):
    """The endpoint says that the conversation is longer than its model can take."""


class _NoFormat(Exception):
    """The endpoint does not take a schema of the answer."""


class _TryAgain(Exception):
    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class Endpoint:
    """One endpoint and model. Use it as an async context manager.

    Args:
        config: which.
        key: bearer token; none is sent where it is empty, and it appears in no error.
        pause: waits so many seconds before the next try.
        silence_seconds: how long the endpoint may say nothing.
    """

    def __init__(
        self,
        config: ModelConfig,
        key: str,
        *,
        pause: Callable[[float], object] | None = None,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._config = config
        self._key = key
        self._sleep = pause
        self._silence = silence_seconds
        self._client: httpx.AsyncClient | None = None
        self._formats = config.json_schema is not False

    async def __aenter__(self) -> Endpoint:
        import httpx

        timeout = httpx.Timeout(self._silence, connect=CONNECT_SECONDS)
        self._client = httpx.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[JsonValue],
        *,
        said: Callable[[str], None],
        note: Callable[[str], None],
        until: float,
        schema: Mapping[str, JsonValue] | None = None,
    ) -> Reply:
        """Return the model's answer to a conversation.

        Args:
            messages: the conversation.
            tools: those that it may call, in the endpoint's form.
            said: gets text as it comes.
            note: is told why it is asked again.
            until: no further try begins, and no pause ends, after this time on the loop's clock.
            schema: of an answer without calls, of which the endpoint is told unless it does not take that.

        Raises:
            EndpointFailed: there is none, after all tries that make sense.
        """
        if schema is not None and self._formats:
            try:
                return await self._tried(self._body(messages, tools, schema), said, note, until)
            except _NoFormat:
                self._formats = False
                note("The model's endpoint takes no schema of the answer; the prompt alone holds it.")
        return await self._tried(self._body(messages, tools), said, note, until)

    async def _tried(
        self, body: bytes, said: Callable[[str], None], note: Callable[[str], None], until: float
    ) -> Reply:
        loop = asyncio.get_running_loop()
        for count in range(1, MAX_TRIES + 1):
            try:
                return await self._once(body, said)
            except _TryAgain as failure:
                pause = failure.pause
                if pause is None:
                    pause = FIRST_PAUSE_SECONDS * 2 ** (count - 1) * random.uniform(0.75, 1.25)  # noqa: S311 - spread only
                if count == MAX_TRIES or pause > MAX_PAUSE_SECONDS or loop.time() + pause >= until:
                    asked = f" (asked {count} times)" if count > 1 else ""
                    raise EndpointFailed(f"the model's endpoint failed: {failure}{asked}") from None
                note(f"The model's endpoint failed ({failure}); asked again in {pause:.1f} s.")
                await self._wait(pause)
        raise AssertionError("the last try returns or raises")

    async def _wait(self, seconds: float) -> None:
        if self._sleep is None:
            await asyncio.sleep(seconds)
        else:
            self._sleep(seconds)

    def _body(
        self, messages: Sequence[Message], tools: Sequence[JsonValue], schema: Mapping[str, JsonValue] | None = None
    ) -> bytes:
        config = self._config
        body: dict[str, object] = {
            "model": config.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:
            body["tools"] = tools
        if schema is not None:
            # Strict mode takes a part of JSON Schema only; what the endpoint lets pass is checked here.
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema, "strict": False},
            }
        if config.temperature is not None:
            body["temperature"] = config.temperature
        if config.max_answer_tokens is not None:
            body["max_tokens"] = config.max_answer_tokens
        return json.dumps(body).encode()

    async def _once(self, body: bytes, said: Callable[[str], None]) -> Reply:
        import httpx

        assert self._client is not None
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            # A packed answer could unfold to any size, so none is asked for and none is taken.
            "Accept-Encoding": "identity",
        }
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        url = f"{self._config.base_url.rstrip('/')}/chat/completions"
        try:
            async with (
                deadlines.timeout(MAX_REPLY_SECONDS),
                self._client.stream("POST", url, content=body, headers=headers) as response,
            ):
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise EndpointFailed("the model's endpoint sends packed answers, which were not asked for")
                if response.status_code != httpx.codes.OK:
                    text = await _error_text(response)
                    if b'"response_format"' in body and _takes_no_format(response.status_code, text):
                        raise _NoFormat
                    raise self._refused(response.status_code, response.headers, text)
                kind = response.headers.get("content-type", "")
                if kind.startswith("text/event-stream"):
                    return await self._streamed(response.aiter_bytes(), said)
                return _told(read_whole(await _bounded(response.aiter_bytes())), said)
        except TimeoutError:
            raise _TryAgain(f"its answer took longer than {MAX_REPLY_SECONDS:.0f} s") from None
        except httpx.TimeoutException:
            raise _TryAgain(f"it said nothing for {self._silence:g} s") from None
        except httpx.HTTPError as error:
            raise _TryAgain(self._safe(f"{type(error).__name__}: {error}")) from None
        except MalformedReply as error:
            raise _TryAgain(self._safe(str(error))) from None

    async def _streamed(self, chunks: AsyncIterator[bytes], said: Callable[[str], None]) -> Reply:
        reply = ReplyBuilder()
        async with aclosing(event_data(_up_to(MAX_REPLY_BYTES, chunks))) as events:
            async for payload in events:
                if text := reply.add(payload):
                    said(text)
        return reply.finish()

    def _refused(self, status: int, headers: Mapping[str, str], text: str) -> Exception:
        words = self._safe(text)
        reason = f"status {status}" + (f": {words}" if words else "")
        if status in _AGAIN:
            return _TryAgain(reason, retry_after(headers.get("retry-after", ""), time.time()))
        if status in (400, 413, 422) and any(word in words.lower() for word in _CONTEXT_WORDS):
            return ContextTooLong(f"the conversation is longer than the model takes: {words}")
        if status in (401, 403):
            name = self._config.api_key_env
            where = f"the key in {name}" if name else "a request without a key (api_key_env)"
            return EndpointFailed(f"the model's endpoint refuses {where}: {reason}")
        return EndpointFailed(f"the model's endpoint refuses the request: {reason}")

    def _safe(self, text: str) -> str:
        """Return words of the endpoint's as one short line, without the key, which some quote."""
        if self._key:
            text = text.replace(self._key, "[key]")
        return clean_line(text, 300)


def retry_after(value: str, now: float) -> float | None:
    """Return for how many seconds a ``Retry-After`` asks, or None where it asks for nothing that is understood.

    Args:
        value: seconds, or a date.
        now: Unix time.
    """
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) <= 10:
        return float(value)
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    return None


def _takes_no_format(status: int, text: str) -> bool:
    words = text.lower()
    return status in _FORMAT_STATUSES and any(word in words for word in _FORMAT_WORDS)


def _told(reply: Reply, said: Callable[[str], None]) -> Reply:
    if reply.text:
        said(reply.text)
    return reply


async def _up_to(size: int, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    count = 0
    async for chunk in chunks:
        count += len(chunk)
        if count > size:
            raise MalformedReply("its stream does not end")
        yield chunk


async def _bounded(chunks: AsyncIterator[bytes]) -> bytes:
    raw = bytearray()
    async for chunk in chunks:
        raw += chunk
        if len(raw) > MAX_REPLY_BYTES:
            raise MalformedReply("its answer is too large")
    return bytes(raw)


async def _error_text(response: httpx.Response) -> str:
    """Return the message in an error's body; other than JSON is not worth showing."""
    raw = bytearray()
    async for chunk in response.aiter_bytes():
        raw += chunk
        if len(raw) > MAX_ERROR_BYTES:
            return ""
    try:
        body = parse_json(raw)
    except ValueError:
        return ""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        return f"{error.get('code') or ''} {error.get('message') or ''}".strip()
    return error if isinstance(error, str) else ""
