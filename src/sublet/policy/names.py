"""Names in the forms in which they are compared, so that a lookalike is never someone else (DESIGN 7).

What allows compares the ``plain`` form: a name that merely looks like an allowed one is not it. What denies compares
the ``skeleton``: a name that looks like a denied one is denied.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from typing import Final, TypeVar

from sublet.policy.confusables import LOOKALIKES

MAX_FORMS: Final = 8_192
"""Names whose forms are remembered."""
MAX_REMEMBERED_CHARS: Final = 256
"""Longer ones are worked out each time: what callers send must not fill our memory."""
_MAX_FOLDS: Final = 4

T = TypeVar("T")

# Neither control nor format characters, yet nothing is seen of them: joiners, fillers and variation selectors.
_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")


def remembered(form: Callable[[str], T]) -> Callable[[str], T]:
    """Return ``form`` with a memory of the names that it was asked for last."""
    known = functools.lru_cache(maxsize=MAX_FORMS)(form)

    @functools.wraps(form)
    def of(name: str) -> T:
        return known(name) if len(name) <= MAX_REMEMBERED_CHARS else form(name)

    return of


@remembered
def plain(name: str) -> str:
    """Return ``name`` composed and without regard to case; an absolute path is returned as it is.

    To the file system, two spellings of a path are two files.
    """
    if name.startswith("/"):
        return name
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).lower())


@remembered
def skeleton(name: str) -> str:
    """Return ``name`` compatibility-composed, case-folded, without invisible characters and lookalikes.

    An absolute path is returned as it is.
    """
    if name.startswith("/"):
        return name
    if name.isascii():
        return name.lower() if name.isprintable() else "".join(c for c in name.lower() if c.isprintable())
    for _ in range(_MAX_FOLDS):
        folded = _folded(name)
        if folded == name:
            break
        name = folded
    return name


def _folded(name: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(c for c in folded if not _unseen(c)).translate(LOOKALIKES)


def _unseen(char: str) -> bool:
    code = ord(char)
    return (
        unicodedata.category(char) in ("Cf", "Cc")
        or char in _UNSEEN
        or 0xFE00 <= code <= 0xFE0F
        or 0xE0100 <= code <= 0xE01EF
    )
