"""Keys between a relay and a client: a client writes below ``up/{slot}/`` and hears below ``down/{slot}/``.

The relay's router binds each slot to the common name of a certificate, so the slot in a key tells who has sent it.
Both ways have prefixes of their own: under one, relays that are joined would pass on for ever what each has sent.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sublet.protocol.patterns import Pattern

_SLOT = Pattern(r"s[0-9]{5}\Z")
MAX_SLOTS: Final = 100_000
CONTROL: Final = "relay"
"""The first chunk of keys that are for the relay itself; those of rooms begin with another."""
_VERBATIM: Final = "/@"
_ESCAPED: Final = "/+@"


class Way(StrEnum):
    """In which direction something goes."""

    UP = "up"
    DOWN = "down"


def slot_name(number: int) -> str:
    """Return the name of a slot, which is also the common name of its certificate.

    Raises:
        ValueError: there is no such slot.
    """
    if not 0 <= number < MAX_SLOTS:
        raise ValueError("no number of a slot")
    return f"s{number:05d}"


def slot_number(name: str) -> int | None:
    """Return the number of a slot by its name; None for what is no slot's name."""
    return int(name[1:]) if _SLOT.match(name) else None


def everything(way: Way, slot: str) -> str:
    """Return the pattern of all keys of a slot in one direction."""
    return f"{way}/{slot}/**"


def wire_key(way: Way, slot: str, key: str) -> str:
    """Return a key as it is said to the relay, or by it; chunks with ``@`` are escaped, since no pattern has them."""
    return f"{way}/{slot}/{key.replace(_VERBATIM, _ESCAPED)}"


def plain_key(way: Way, wire: str) -> tuple[str, str] | None:
    """Return slot and key of one on the wire; None for one that has another form."""
    there, _, rest = wire.partition("/")
    slot, _, key = rest.partition("/")
    if there != way or not key or not _SLOT.match(slot):
        return None
    return slot, key.replace(_ESCAPED, _VERBATIM)
