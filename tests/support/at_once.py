"""Runs async code that waits for nothing, without an event loop, so that its cost can be counted alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, TypeVar

from sublet.supervisor.chat.sse import event_data

T = TypeVar("T")


def run_at_once(code: Coroutine[Any, Any, T]) -> T:
    """Return what ``code`` returns; it must not wait for anything."""
    try:
        code.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("it waits for something")


def events_of(chunks: Iterable[bytes]) -> list[str]:
    """Return the data of each event of a chat endpoint's stream that arrives in these chunks."""

    async def arriving() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def read() -> list[str]:
        return [event async for event in event_data(arriving())]

    return run_at_once(read())
