"""How much of a room is hidden from whom: a value of its config that can be raised, and never lowered."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class Encryption(StrEnum):
    """From whom the messages of a room are hidden, the weakest first."""

    TRANSPORT_ONLY = "transport_only"
    """From who taps a link (ezagent 4.2)."""
    MEMBERS = "members"
    """From everybody who is no member, relays and neighbours on the bus among them."""


_ORDER: Final = tuple(Encryption)
_LEVELS: Final = {level.value: level for level in Encryption}


def encryption_of(value: object) -> Encryption | None:
    """Return the level that a written value stands for, or None where it is none."""
    return _LEVELS.get(value) if isinstance(value, str) else None


def is_raise(value: object, held: object) -> bool:
    """Tell whether a room that holds one value may get another: one that hides as much, or more."""
    level, before = encryption_of(value), encryption_of(held)
    return level is not None and (before is None or _ORDER.index(level) >= _ORDER.index(before))


def strongest(values: Iterable[object]) -> Encryption:
    """Return the strongest of some written values, ``TRANSPORT_ONLY`` where none is a level."""
    known = (level for level in map(encryption_of, values) if level is not None)
    return max(known, key=_ORDER.index, default=Encryption.TRANSPORT_ONLY)
