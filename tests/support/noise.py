"""Bytes that nothing compresses and no file has by chance, the same ones in each run."""

from __future__ import annotations

from random import Random

_SEED = "noise"
_drawn = Random(_SEED)


def noise(size: int) -> bytes:
    """Return so many bytes; each call of a test returns others."""
    return _drawn.randbytes(size)


def begin_anew() -> None:
    """Draw the same bytes as at the start: before each test, so that none depends on those before it."""
    _drawn.seed(_SEED)
