"""What an SFTP operation gives back."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from sublet.workspace.sftp.wire import Reader


class ThreadWork:
    """Work for a thread, which holds descriptors: they are closed also where no thread ever takes it.

    Args:
        do: does it, and closes what it holds.
        drop: closes what ``do`` holds; called instead of it, with the last reference to this object.
    """

    def __init__(self, do: Callable[[], bytes], drop: Callable[[], None]) -> None:
        self._do = do
        self._drop = drop
        self._begun = False

    def __call__(self) -> bytes:
        """Do it, once."""
        self._begun = True
        return self._do()

    def __del__(self) -> None:
        # Threads that are shut down, and a loop that ends, forget what waits for them without a word.
        if not self._begun:
            self._drop()


@dataclass(frozen=True, slots=True)
class SlowReply:
    """An answer that takes long: ``run`` gives it, in a thread, and touches nothing of the session.

    Where it returns nothing, ``finish`` gives the answer, on the loop, unless the session has ended meanwhile. Without
    any, the request is done once more by the core.
    """

    run: ThreadWork
    finish: Callable[[], bytes] | None = None

    def answer(self) -> bytes:
        """Do all of it at once and return the answer."""
        return self.run() or (self.finish() if self.finish is not None else b"")


@dataclass(frozen=True, slots=True)
class SteppedReply:
    """An answer that takes many small steps: the generator returns it. Between two steps others may have the loop.

    It holds descriptors, so it has to be run to its end or closed.
    """

    steps: Generator[None, None, bytes | SlowReply]

    def answer(self) -> bytes:
        """Take all steps at once and return the answer; nothing where the request is to be done again."""
        while True:
            try:
                next(self.steps)
            except StopIteration as end:
                answer: bytes | SlowReply = end.value
                return answer if isinstance(answer, bytes) else answer.answer()


Reply = bytes | SlowReply | SteppedReply
Operation = Callable[[int, Reader], Reply]
"""Called with the request's id and its fields from behind the id."""
