"""Async iterators that are closed when their reader is done with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

ItemT = TypeVar("ItemT")


@asynccontextmanager
async def closing(iterator: AsyncIterator[ItemT]) -> AsyncIterator[AsyncIterator[ItemT]]:
    """Yield ``iterator`` and close it afterwards, where it is one that can be closed.

    The interfaces say ``AsyncIterator``; what implements them are generators, whose end must not be left to the
    garbage collector: it stops a task and unmounts.
    """
    try:
        yield iterator
    finally:
        if isinstance(iterator, AsyncGenerator):
            await iterator.aclose()
