"""Loads what a daemon needs without what it never uses.

``structlog`` and ``httpx`` load libraries that print in colour wherever those are installed, as they are for the
commands. In a daemon, whose log is JSON, these would be several MiB for good.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

COLOURS: Final = ("click", "pygments", "rich")
"""Both libraries do without each of these where it can't be imported."""


@contextmanager
def without_colours() -> Iterator[None]:
    """Have imports find none of ``COLOURS`` that is not loaded yet; what is imported afterwards finds them again."""
    hidden = [name for name in COLOURS if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None is what ends an import
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def load_lean() -> None:
    """Load the two libraries that a daemon shares with the commands."""
    with without_colours():
        import httpx  # noqa: F401
        import structlog  # noqa: F401
