"""One answer of a chat model, put together from its pieces. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean_line
from sublet.supervisor.chat.sse import MalformedReply

MAX_TEXT_CHARS: Final = 2_000_000
MAX_CALLS: Final = 64
MAX_ARGUMENT_CHARS: Final = 4_000_000
MAX_ID_CHARS: Final = 200
END: Final = "[DONE]"


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call as the model wrote it: ``arguments`` is text that may or may not be JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one request, as the endpoint counts them."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. ``finish`` is why it ended, in the endpoint's word; ``usage`` is None where it told none."""

    text: str
    calls: tuple[RawCall, ...]
    finish: str
    usage: TokenUsage | None


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class ReplyBuilder:
    """Takes the pieces of a stream, or the one object of an endpoint that does not stream."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._text_chars = 0
        self._argument_chars = 0
        self._calls: dict[int, _Call] = {}
        self._finish = ""
        self._usage: TokenUsage | None = None
        self._ended = False

    def add(self, payload: str) -> str:
        """Take the data of one event and return the text that it adds.

        Raises:
            MalformedReply: it is no piece of an answer, or the answer gets too large.
        """
        if payload.strip() == END:
            self._ended = True
            return ""
        return self.take(_object(payload))

    def take(self, body: dict[str, JsonValue]) -> str:
        """Take one object, a piece or the whole, and return the text that it adds.

        Raises:
            MalformedReply: as ``add``; with the endpoint's own words where it reports an error.
        """
        error = body.get("error")
        if error:
            told = error.get("message") if isinstance(error, dict) else error
            raise MalformedReply(f"it reported: {clean_line(str(told), 300)}")
        self._usage = _usage(body.get("usage")) or self._usage
        choices = body.get("choices")
        if not isinstance(choices, list):
            raise MalformedReply("a piece of its answer has no choices")
        added = ""
        for choice in choices[:1]:
            if not isinstance(choice, dict):
                raise MalformedReply("a piece of its answer is none")
            added += self._choice(choice)
        return added

    def finish(self) -> Reply:
        """Return the answer, now that all pieces are there.

        Raises:
            MalformedReply: the stream has ended before the answer did, or a call names no tool.
        """
        if not self._finish and not self._ended:
            raise MalformedReply("its stream ended before its answer did")
        calls = []
        for number, call in sorted(self._calls.items()):
            if not call.name:
                raise MalformedReply("a call names no tool")
            calls.append(RawCall(call.id or f"call_{number}", call.name, "".join(call.arguments)))
        return Reply("".join(self._text), tuple(calls), self._finish or "stop", self._usage)

    def _choice(self, choice: dict[str, JsonValue]) -> str:
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self._finish = finish[:MAX_ID_CHARS]
        piece = choice.get("delta") or choice.get("message") or {}
        if not isinstance(piece, dict):
            raise MalformedReply("a piece of its answer is none")
        calls = piece.get("tool_calls") or []
        if not isinstance(calls, list):
            raise MalformedReply("its tool calls are no list")
        for position, call in enumerate(calls):
            self._call(call, position)
        text = piece.get("content")
        if not isinstance(text, str):
            return ""
        self._text_chars += len(text)
        if self._text_chars > MAX_TEXT_CHARS:
            raise MalformedReply("its answer is too long")
        self._text.append(text)
        return text

    def _call(self, piece: JsonValue, position: int) -> None:
        if not isinstance(piece, dict):
            raise MalformedReply("a tool call is none")
        index = piece.get("index", position)
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < MAX_CALLS:
            raise MalformedReply("it calls too many tools at once")
        call = self._calls.setdefault(index, _Call())
        function = piece.get("function")
        name, arguments = (function.get("name"), function.get("arguments")) if isinstance(function, dict) else ("", "")
        if isinstance(piece.get("id"), str):
            call.id = call.id or str(piece["id"])[:MAX_ID_CHARS]
        if isinstance(name, str):
            call.name = call.name or name[:MAX_ID_CHARS]
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments)  # some endpoints send the object itself
        if isinstance(arguments, str):
            self._argument_chars += len(arguments)
            if self._argument_chars > MAX_ARGUMENT_CHARS:
                raise MalformedReply("the arguments of its tool calls are too long")
            call.arguments.append(arguments)


def read_whole(raw: bytes) -> Reply:
    """Return the answer of an endpoint that does not stream.

    Raises:
        MalformedReply: it is none.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedReply("its answer is not UTF-8") from None
    builder = ReplyBuilder()
    builder.take(_object(text))
    return builder.finish()


def _object(text: str) -> dict[str, JsonValue]:
    try:
        body = parse_json(text)
    except ValueError:
        raise MalformedReply("its answer is not JSON") from None
    if not isinstance(body, dict):
        raise MalformedReply("its answer is no JSON object")
    return body


def _usage(value: JsonValue) -> TokenUsage | None:
    if not isinstance(value, dict):
        return None
    counts = [value.get(name) for name in ("prompt_tokens", "completion_tokens")]
    numbers = [count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count >= 0]
    return TokenUsage(*numbers) if len(numbers) == len(counts) else None
