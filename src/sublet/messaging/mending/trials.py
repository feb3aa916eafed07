"""Engines over stores in memory, in which a document is worked out once more; nothing of that stays in them.

Rules: whoever looks at thousands of documents uses one engine for all of them, since to make one takes longer than to
work out a short document. All that is written is taken back, and what the engine has in memory is forgotten; where
anything fails it is not used again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sublet.messaging.engine.engine import Engine


class Trials:
    """See the module. Thread-safe: who comes while the engine is used gets another one.

    Args:
        make: makes an engine over a store in memory.
    """

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._spare: Engine | None = None

    @contextmanager
    def one(self) -> Iterator[Engine]:
        """Lend an engine in which nothing is, in a transaction of its store; blocks."""
        with self._lock:
            engine, self._spare = self._spare or self._make(), None
        again = False
        try:
            try:
                with engine.store.transaction():
                    yield engine
                    raise _TakenBack
            except _TakenBack:
                engine.forget()
                again = True
        finally:
            if again:
                self._take(engine)
            else:
                engine.store.close()

    def rest(self) -> None:
        """Give back what takes memory until an engine is needed again."""
        self._take(None)

    def _take(self, engine: Engine | None) -> None:
        with self._lock:
            before, self._spare = self._spare, engine
        if before is not None:
            before.store.close()


class _TakenBack(Exception):
    """What was written is to be taken back."""
