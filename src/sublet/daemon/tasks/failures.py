"""One failure instead of a group of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sole_failure(*kinds: type[Exception]) -> Iterator[None]:
    """Raise the first failure of these ``kinds`` by itself where the body raises a group of them.

    Task groups raise groups, while one failure is what ends a delegation or a start, and what a user wants to read.
    """
    failure: Exception | None = None
    try:
        yield
    except* kinds as failures:
        failure = _first(failures)
    # Not inside the handler: Python before 3.11.4 wraps what is raised there in a group again.
    if failure is not None:
        raise failure from None


def _first(failures: BaseExceptionGroup[Exception]) -> Exception:
    head = failures.exceptions[0]
    return _first(head) if isinstance(head, BaseExceptionGroup) else head
