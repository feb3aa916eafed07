"""What a daemon wants to hear over a relay: from whom, and of which rooms. Nothing else is forwarded to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sublet.protocol.canonical import canonical_json
from sublet.protocol.ezagent.ids import is_room_id
from sublet.protocol.patterns import Pattern
from sublet.protocol.relay.fields import parse_object, texts_of

MAX_CONTACTS: Final = 1_024
MAX_ROOMS: Final = 4_096
MAX_ATTENDANCE_BYTES: Final = 256 << 10
_NODE = Pattern(r"node-[a-z2-7]{16}\Z")
_FIELDS: Final = frozenset({"contacts", "rooms"})


@dataclass(frozen=True, slots=True)
class Attendance:
    """What a daemon wants to hear.

    Args:
        contacts: node ids of daemons whose messages to our entities it takes: those that it is paired with.
        rooms: the rooms that it has taken up.
    """

    contacts: frozenset[str] = frozenset()
    rooms: frozenset[str] = frozenset()

    def encode(self) -> bytes:
        """Return it as it travels; of too many, those that come first by name."""
        contacts, rooms = sorted(self.contacts)[:MAX_CONTACTS], sorted(self.rooms)[:MAX_ROOMS]
        return canonical_json({"contacts": list(contacts), "rooms": list(rooms)})


def parse_attendance(raw: bytes) -> Attendance:
    """Return what a daemon wants to hear.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR``.
    """
    body = parse_object(raw, MAX_ATTENDANCE_BYTES, _FIELDS)
    return Attendance(
        frozenset(texts_of(body, "contacts", _NODE.match, MAX_CONTACTS)),
        frozenset(texts_of(body, "rooms", is_room_id, MAX_ROOMS)),
    )
