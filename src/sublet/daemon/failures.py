"""One failure instead of a group of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sole_failure(*kinds: type[Exception]) -> Iterator[None]:
    """Raise the first failure of these ``kinds`` by itself where the body raises a group of them.

    Task groups raise groups, while one failure is what ends a delegation or a start, and what a user wants to read.
    """
    try:
        yield
    except* kinds as failures:
        raise _first(failures) from None


def _first(failures: BaseExceptionGroup[Exception]) -> Exception:
    head = failures.exceptions[0]
    return _first(head) if isinstance(head, BaseExceptionGroup) else head
