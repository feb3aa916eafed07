"""A conversation with a chat model, and how it is made to fit where it has grown too long. No I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, cast

from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.patterns import Pattern
from sublet.supervisor.chat.endpoint import Message
from sublet.supervisor.chat.reply import RawCall, Reply, TokenUsage

CHARS_PER_TOKEN: Final = 3.5
TOKENS_PER_MESSAGE: Final = 6
KEPT_RESULTS: Final = 4
"""The newest results of tools, which are left out last."""
SMALL_CHARS: Final = 400
"""Results and arguments that are shorter are not worth leaving out."""
FULL: Final = 0.9
"""How much of the context a request may fill; the rest is for the answer."""
MAX_CALIBRATION: Final = 4.0

_NAME = Pattern(r"[^A-Za-z0-9_-]")
_OURS = Pattern(r"call_([0-9]{1,9})_")


class Conversation:
    """Messages, oldest first, without the system's, which is made anew for every task.

    Args:
        messages: what was said in an earlier task.
    """

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages: list[Message] = [dict(message) for message in messages]
        self._calibration = 1.0
        ids = [str(message.get("tool_call_id") or "") for message in self.messages]
        numbers = [int(found[1]) for one in ids if (found := _OURS.match(one))]
        self._answers = max(numbers, default=-1) + 1

    def ask(self, text: str) -> None:
        """Add what a person, or another agent, says."""
        self.messages.append({"role": "user", "content": text})

    def answered(self, reply: Reply) -> tuple[RawCall, ...]:
        """Add what the model has answered, and return its calls under ids that no other call of the conversation has.

        Endpoints count from zero in every answer, or name none, and refuse what they would not have written.
        """
        message: Message = {"role": "assistant", "content": reply.text or None}
        at = self._answers
        self._answers += 1
        calls = tuple(RawCall(f"call_{at}_{n}", call.name, call.arguments) for n, call in enumerate(reply.calls))
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": _NAME.sub("_", call.name)[:64], "arguments": _valid(call.arguments)},
                }
                for call in calls
            ]
        elif not reply.text:
            message["content"] = ""
        self.messages.append(message)
        return calls

    def result(self, call_id: str, text: str) -> None:
        """Add what came of one call."""
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def close_calls(self, text: str) -> None:
        """Give every call that has no result yet ``text`` as one, as endpoints refuse a conversation otherwise."""
        done = {message.get("tool_call_id") for message in self.messages if message["role"] == "tool"}
        for message in list(self.messages):
            for call in cast("list[dict[str, str]]", message.get("tool_calls") or []):
                if call["id"] not in done:
                    self.result(call["id"], text)

    def estimate(self, system: str, tools: Sequence[JsonValue], reply: Reply | None = None) -> TokenUsage:
        """Return about how many tokens the conversation, and an answer, take."""
        answer = 0
        if reply is not None:
            answer = _tokens(len(reply.text) + sum(len(call.arguments) + len(call.name) for call in reply.calls))
        return TokenUsage(int(self._raw(system, tools) * self._calibration), answer)

    def calibrate(self, system: str, tools: Sequence[JsonValue], told: TokenUsage | None) -> None:
        """Learn from what the endpoint has counted how far off our estimate is; called before the answer is added."""
        raw = self._raw(system, tools)
        if told is not None and told.prompt_tokens and raw:
            self._calibration = min(MAX_CALIBRATION, max(1.0, told.prompt_tokens / raw))

    def fit(self, system: str, tools: Sequence[JsonValue], context_tokens: int) -> bool:
        """Leave out old results, then old arguments, then whole old exchanges, until a request fits.

        What is left out depends on nothing but the conversation, and says in its place that it was there.

        Returns:
            Whether it fits now.
        """
        room = context_tokens * FULL
        for shorten in (self._shorten_result, self._shorten_arguments, self._drop_exchange):
            while self.estimate(system, tools).prompt_tokens > room:
                if not shorten():
                    break
        return self.estimate(system, tools).prompt_tokens <= room

    def _shorten_result(self) -> bool:
        results = [message for message in self.messages if message["role"] == "tool"]
        for message in results[:-KEPT_RESULTS]:
            content = str(message["content"])
            if len(content) > SMALL_CHARS:
                message["content"] = f"[A result of {len(content):,} characters was here; call the tool again for it.]"
                return True
        return False

    def _shorten_arguments(self) -> bool:
        calls = [
            cast("dict[str, str]", call["function"])
            for message in self.messages
            for call in cast("list[dict[str, JsonValue]]", message.get("tool_calls") or [])
        ]
        for function in calls[:-KEPT_RESULTS]:
            size = len(function["arguments"])
            if size > SMALL_CHARS:
                function["arguments"] = json.dumps({"left_out": f"arguments of {size:,} characters"})
                return True
        return False

    def _drop_exchange(self) -> bool:
        """Drop the oldest answer with its results; what was asked first and last stays."""
        for start, message in enumerate(self.messages):
            if message["role"] != "assistant":
                continue
            end = start + 1
            while end < len(self.messages) and self.messages[end]["role"] == "tool":
                end += 1
            if not any(later["role"] == "assistant" for later in self.messages[end:]):
                return False
            del self.messages[start:end]
            return True
        return False

    def _raw(self, system: str, tools: Sequence[JsonValue]) -> int:
        chars = len(system) + (len(json.dumps(tools)) if tools else 0)
        for message in self.messages:
            chars += len(str(message.get("content") or ""))
            for call in cast("list[dict[str, dict[str, str]]]", message.get("tool_calls") or []):
                chars += len(call["function"]["name"]) + len(call["function"]["arguments"])
        return _tokens(chars) + TOKENS_PER_MESSAGE * (len(self.messages) + 1)


def _tokens(chars: int) -> int:
    return int(chars / CHARS_PER_TOKEN) + (1 if chars else 0)


def _valid(arguments: str) -> str:
    """Return arguments as they may be sent back: what is no JSON is quoted, in part, as a string in an object."""
    try:
        parse_json(arguments)
    except (ValueError, RecursionError):
        return json.dumps({"malformed": arguments[:SMALL_CHARS]})
    return arguments
