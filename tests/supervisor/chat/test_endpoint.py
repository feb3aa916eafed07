"""What a model's endpoint may answer that is no answer: asked again where that can help, refused where it can't."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
import respx

from sublet.supervisor.chat.endpoint import MAX_PAUSE_SECONDS, MAX_TRIES, ContextTooLong, Endpoint, EndpointFailed
from sublet.supervisor.chat.reply import Reply
from sublet.supervisor.model_config import ModelConfig

pytestmark = pytest.mark.anyio

BASE = "https://models.example/v1"
KEY = "sk-very-secret"
CONFIG = ModelConfig(type="model", base_url=BASE, model="m", api_key_env="MODEL_KEY")
GOOD = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
EVENTS = {"Content-Type": "text/event-stream"}


@dataclass
class Asked:
    """What came of one question: the reply or why there is none, the pauses, and what people were told."""

    reply: Reply | None = None
    failure: EndpointFailed | None = None
    pauses: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def why(self) -> str:
        assert self.failure is not None
        return str(self.failure)


async def ask(*answers: httpx.Response | Exception) -> tuple[Asked, respx.Route]:
    """Ask once, with the endpoint giving ``answers`` one after the other, the last one again and again."""
    asked = Asked()
    with respx.mock(assert_all_called=False) as router:
        route = router.post(f"{BASE}/chat/completions")
        left = list(answers)

        def answer(_request: httpx.Request) -> httpx.Response:
            one = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(one, Exception):
                raise one
            return one

        route.mock(side_effect=answer)
        async with Endpoint(CONFIG, KEY, pause=asked.pauses.append) as endpoint:
            until = asyncio.get_running_loop().time() + 3_600
            try:
                asked.reply = await endpoint.ask(
                    [{"role": "user", "content": "well?"}],
                    [],
                    said=lambda _: None,
                    note=asked.notes.append,
                    until=until,
                )
            except EndpointFailed as failure:
                asked.failure = failure
        return asked, route


def good() -> httpx.Response:
    return httpx.Response(200, json=GOOD)


async def test_429_is_asked_again_after_the_time_that_it_names() -> None:
    asked, route = await ask(httpx.Response(429, headers={"Retry-After": "7"}, json={"error": "slow down"}), good())
    assert asked.reply is not None
    assert (asked.reply.text, asked.pauses, route.call_count) == ("yes", [7.0], 2)
    assert "status 429: slow down" in asked.notes[0]


async def test_a_time_that_is_too_long_is_not_waited_for() -> None:
    wait = str(int(MAX_PAUSE_SECONDS) + 1)
    asked, route = await ask(httpx.Response(429, headers={"Retry-After": wait}))
    assert (asked.pauses, route.call_count) == ([], 1)
    assert "status 429" in asked.why


@pytest.mark.parametrize("answer", ["nonsense", "-5", "soon"])
async def test_a_time_that_is_none_is_ours(answer: str) -> None:
    asked, _ = await ask(httpx.Response(503, headers={"Retry-After": answer}), good())
    assert asked.reply is not None
    assert 0 < asked.pauses[0] < 1


async def test_500_is_asked_again_a_few_times_and_ever_later() -> None:
    asked, route = await ask(httpx.Response(500, json={"error": {"message": "broken"}}))
    assert route.call_count == MAX_TRIES
    assert f"status 500: broken (asked {MAX_TRIES} times)" in asked.why
    assert asked.pauses == sorted(asked.pauses)
    assert len(asked.pauses) == MAX_TRIES - 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b'{"choices": [', headers={"Content-Type": "application/json"}),
        httpx.Response(200, json={"choices": []}),
        httpx.Response(200, json=[]),
        httpx.Response(200, content=b"<html>Welcome!</html>", headers={"Content-Type": "text/html"}),
        httpx.Response(200, content=b"data: {not json}\n\n", headers=EVENTS),
    ],
    ids=["cut", "no-choice", "no-object", "a-page", "no-event"],
)
async def test_what_is_no_answer_is_asked_for_again_and_never_taken(answer: httpx.Response) -> None:
    asked, route = await ask(answer)
    assert (asked.reply, route.call_count) == (None, MAX_TRIES)
    assert "the model's endpoint failed" in asked.why


class _Cut(httpx.AsyncByteStream):
    """A stream that breaks in the middle of a call's arguments."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": "file_delete", "arguments": '{"pa'}}
        delta = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
        yield f"data: {json.dumps(delta)}\n\n".encode()
        raise httpx.ReadError("the connection was reset")


@pytest.mark.parametrize("how", ["reset", "ended"])
async def test_half_a_stream_is_no_answer(how: str) -> None:
    half = {"choices": [{"index": 0, "delta": {"content": "ye"}, "finish_reason": None}]}
    ended = httpx.Response(200, headers=EVENTS, content=f"data: {json.dumps(half)}\n\n".encode())
    cut = httpx.Response(200, headers=EVENTS, stream=_Cut()) if how == "reset" else ended
    asked, route = await ask(cut, good())
    assert asked.reply is not None
    assert (asked.reply.text, asked.reply.calls, route.call_count) == ("yes", (), 2)


async def test_a_redirect_is_followed_nowhere() -> None:
    elsewhere = httpx.Response(307, headers={"Location": "https://elsewhere.example/v1/chat/completions"})
    # A request to any other address would fail the test: nothing there is mocked.
    asked, route = await ask(elsewhere)
    assert route.call_count == 1
    assert "status 307" in asked.why


async def test_packed_answers_are_not_unpacked() -> None:
    packed = httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=gzip.compress(json.dumps(GOOD).encode()))
    asked, _ = await ask(packed)
    assert "packed" in asked.why


async def test_a_refused_key_is_told_by_its_name_and_never_shown() -> None:
    asked, route = await ask(httpx.Response(401, json={"error": {"message": f"bad key {KEY}"}}))
    assert route.call_count == 1
    assert "the key in MODEL_KEY" in asked.why
    assert KEY not in asked.why


async def test_a_conversation_that_is_too_long_is_told_apart() -> None:
    asked, route = await ask(httpx.Response(400, json={"error": {"code": "context_length_exceeded"}}))
    assert isinstance(asked.failure, ContextTooLong)
    assert route.call_count == 1


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow")])
async def test_a_connection_that_fails_is_tried_again(failure: Exception) -> None:
    asked, route = await ask(failure, good())
    assert asked.reply is not None
    assert route.call_count == 2
