"""What people are told of a peer whose rooms this daemon can't join, since one of both is an older Sublet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sublet.daemon.ports.peer_link import BUS_WIRE, BusAddress
from sublet.protocol.text import clean_line

_CAME_WITH: Final[Mapping[int, str]] = MappingProxyType(
    {
        2: "links of TLS with pinned keys on one machine too",
        3: "comparing all of a room at once, and one order of its messages",
        4: "purging messages and files",
        5: "rooms whose messages and files only their members read",
    }
)
"""What rooms have since each form of bus (``BUS_WIRE``)."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Why no rooms are shared with a peer, and what to do about it."""

    what: str
    remedy: str


def rooms_apart(name: str, bus: BusAddress) -> Apart:
    """Return what to say of a peer whose bus has another form than ours.

    Args:
        name: the peer's.
        bus: its bus; its version is in its own words.
    """
    older = bus.wire < BUS_WIRE
    version = f" ({clean_line(bus.version, 40)})" if bus.version else ""
    what = (
        f"{name} runs {'an older' if older else 'a newer'} Sublet{version}, whose rooms do not reach this one's: "
        "no message goes between them until both are of one form, while delegations go on in both directions"
    )
    lacks = [told for wire, told in _CAME_WITH.items() if bus.wire < wire]
    if lacks:
        what += f"; it lacks {', '.join(lacks)}"
    return Apart(what, f"update Sublet {f'where {name} runs' if older else 'here'}")
