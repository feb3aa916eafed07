"""The name that was meant, where a wrong one is nearly it. Whoever asks gives only names that its caller may see."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

MAX_GIVEN_CHARS: Final = 100
"""A longer name is not compared: comparing takes the square of it."""
MAX_COMPARED: Final = 500


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return ``, did you mean 'bob'?`` for a name that is not known, and empty where none of ``known`` is near it."""
    if not 0 < len(given) <= MAX_GIVEN_CHARS:
        return ""
    from difflib import get_close_matches  # which takes as long to load as all the rest of a command

    lower = {name.lower(): name for name in islice(known, MAX_COMPARED) if len(name) <= MAX_GIVEN_CHARS}
    near = get_close_matches(given.lower(), lower, n=1)
    return f", did you mean {lower[near[0]]!r}?" if near else ""
