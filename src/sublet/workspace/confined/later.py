"""What has to be found out first, which takes too long to be done where everybody waits."""

from __future__ import annotations

from collections.abc import Callable


class NotKnownYet(Exception):
    """An operation can't be decided yet, and has changed nothing.

    Args:
        learn: finds out what is missing, in any thread; afterwards the operation is asked for again. It raises
            ``OSError`` where the directory is gone.
        drop: lets go of what ``learn`` holds, where that is never called.
    """

    def __init__(self, learn: Callable[[], None], drop: Callable[[], None]) -> None:
        super().__init__("something has to be looked at first")
        self.learn = learn
        self.drop = drop


def need(learn: Callable[[], None], drop: Callable[[], None], *, patient: bool) -> None:
    """Find out what is missing: at once where whoever asks is patient, else by having it done.

    Raises:
        NotKnownYet: the caller is not patient.
        OSError: as ``learn``.
    """
    if not patient:
        raise NotKnownYet(learn, drop)
    learn()
