"""Who gets what somebody sends, by the statements of rooms and by what each daemon wants to hear; no sockets.

Rules: nothing goes to a daemon that has not asked for it, by having taken up the room or by naming the sender as a
contact; nothing of a room is taken from a daemon that its statement does not name, and nothing is published there by
one that only reads; what belongs to an entity goes to its own daemon, or comes from it; what one node of federation
asks another goes to that one alone, if both have named each other. Daemons are told by node id.

Weak: a relay learns from the keys which daemons share which rooms, and which entities are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import RoomId, entity_domain
from sublet.protocol.ezagent.keys import Channel, DocumentPlace, parse_doc_id
from sublet.protocol.federation.relayed_keys import relayed_between
from sublet.protocol.ids import node_id
from sublet.protocol.relay.attendance import Attendance
from sublet.protocol.relay.errors import RelayCode, RelayRefusal
from sublet.protocol.relay.room_statement import RoomStatement, check_follows

MAX_ROOMS: Final = 100_000
"""Rooms of which statements are kept, of all accounts together."""
MAX_ROOMS_OF_SIGNER: Final = 1_024
"""Rooms whose last statement one daemon has made."""
MAX_BYTES: Final = 256 << 20
"""What all statements hold in memory."""
MAX_BYTES_OF_SIGNER: Final = 8 << 20
STATEMENT_BYTES: Final = 1 << 10
HOME_BYTES: Final = 192
"""What one statement holds, and each daemon that it names."""
MAX_STEPS: Final = 65_536
"""Rooms and their daemons that are looked at to find with whom a daemon shares one."""
_ENDS: Final = tuple(f"/{channel}" for channel in Channel)
_WRITTEN: Final = frozenset({"index", "content", "acl", "blob_ref", "purge"})
"""What is written into a room; who only reads still acknowledges, shows that it is there, and leaves."""
_NOBODY: Final = frozenset[str]()


class Sent(Enum):
    """How something is sent."""

    PUBLISHED = "published"
    ASKED = "asked"
    ANNOUNCED = "announced"


class KnowsRooms(Protocol):
    """Says who is in a room: all that forwarding needs of rooms, whether they are sealed or not."""

    def statement(self, room: RoomId) -> RoomStatement | None:
        """Return the statement of a room that counts."""


class RoomTable:
    """The statements of rooms that count, the last one of each; whoever has made it bears it.

    Args:
        statements: those that were kept.
    """

    def __init__(self, statements: Iterable[RoomStatement] = ()) -> None:
        self._of: dict[RoomId, RoomStatement] = {}
        self._signed: dict[str, dict[RoomId, int]] = {}
        """Of which rooms each daemon has made the last statement, and how many bytes that holds."""
        self._size_of: Counter[str] = Counter()
        self.size = 0
        """Bytes that all hold."""
        for one in statements:
            self.put(one)

    def __len__(self) -> int:
        return len(self._of)

    def statement(self, room: RoomId) -> RoomStatement | None:
        """``KnowsRooms.statement``."""
        return self._of.get(room)

    def check(self, statement: RoomStatement) -> None:
        """Do nothing where a statement may be taken.

        Raises:
            RelayRefusal: ``PERMISSION_DENIED``, ``CONFLICT``, or ``QUOTA_EXCEEDED`` for too many rooms.
        """
        before, signer = self._of.get(statement.room), node_id(statement.signer)
        check_follows(statement, before)
        ours = self._signed.get(signer, {})
        is_another, size = statement.room not in ours, held_by(statement)
        of_signer = self._size_of[signer] - ours.get(statement.room, 0) + size
        of_all = self.size - (held_by(before) if before is not None else 0) + size
        if (
            (before is None and len(self._of) >= MAX_ROOMS)
            or (is_another and len(ours) >= MAX_ROOMS_OF_SIGNER)
            or of_signer > MAX_BYTES_OF_SIGNER
            or of_all > MAX_BYTES
        ):
            raise RelayRefusal(RelayCode.QUOTA_EXCEEDED, "no more rooms are kept")

    def put(self, statement: RoomStatement) -> None:
        """Take a statement that was kept."""
        before = self._of.get(statement.room)
        if before is not None:
            self._forget(before)
        self._of[statement.room] = statement
        signer, size = node_id(statement.signer), held_by(statement)
        self._signed.setdefault(signer, {})[statement.room] = size
        self._size_of[signer] += size
        self.size += size

    def drop(self, signer: str) -> frozenset[RoomId]:
        """Forget what a daemon has stated, by its node id; return of which rooms."""
        rooms = frozenset(self._signed.get(signer, ()))
        for room in rooms:
            self._forget(self._of.pop(room))
        return rooms

    def _forget(self, statement: RoomStatement) -> None:
        signer = node_id(statement.signer)
        size = self._signed[signer].pop(statement.room)
        self.size -= size
        self._size_of[signer] -= size
        if not self._signed[signer]:
            del self._signed[signer], self._size_of[signer]


@dataclass(frozen=True, slots=True)
class Routes:
    """Finds who gets something.

    Args:
        rooms: knows who is in them.
        attending: what each daemon that is linked wants to hear, by node id.
    """

    rooms: KnowsRooms
    attending: Mapping[str, Attendance]
    _companions_of: dict[str, frozenset[str]] = field(default_factory=dict)

    def changed(self) -> None:
        """Note that a statement has changed, or what somebody wants to hear."""
        self._companions_of.clear()

    def of(self, sender: str, key: str, how: Sent) -> frozenset[str]:
        """Return the node ids of the daemons that get what a daemon sends under a key; the sender is never one."""
        if (between := relayed_between(key)) is not None:
            recipient, named = between
            asks = how is Sent.ASKED and named == sender
            return self._contacts(sender) & {recipient} - {sender} if asks else _NOBODY
        place = place_of(key)
        if place is None:
            return _NOBODY
        if place.room_id is not None:
            written = how is Sent.PUBLISHED and place.kind in _WRITTEN
            found = self._of_room(sender, place.room_id, is_written=written)
        elif place.entity_id is not None:
            found = self._of_entity(sender, place, place.entity_id)
        else:
            found = self._companions(sender)
        return found - {sender}

    def _of_room(self, sender: str, room: RoomId, *, is_written: bool = False) -> frozenset[str]:
        statement = self.rooms.statement(room)
        if statement is None or sender not in statement.members:
            return _NOBODY
        if is_written and sender not in statement.homes.writers:
            return _NOBODY
        return frozenset(
            one for one in statement.members if (wants := self.attending.get(one)) is not None and room in wants.rooms
        )

    def _of_entity(self, sender: str, place: DocumentPlace, entity: str) -> frozenset[str]:
        home = entity_domain(entity)
        if home != sender and is_private(place):
            return self._contacts(sender) & {home}
        return self._contacts(sender) | self._companions(sender)

    def _contacts(self, sender: str) -> frozenset[str]:
        """Return the daemons that a daemon has named, and that have named it."""
        wants = self.attending.get(sender)
        if wants is None:
            return _NOBODY
        return frozenset(
            one for one in wants.contacts if (there := self.attending.get(one)) is not None and sender in there.contacts
        )

    def _companions(self, sender: str) -> frozenset[str]:
        """Return the daemons with which a daemon shares a room that both have taken up, as far as ``MAX_STEPS`` go."""
        known = self._companions_of.get(sender)
        if known is not None:
            return known
        wants, found, steps = self.attending.get(sender), set[str](), 0
        for room in sorted(wants.rooms) if wants is not None else ():
            statement = self.rooms.statement(room)
            steps += 1 + (len(statement.members) if statement is not None else 0)
            if steps > MAX_STEPS:
                break
            found |= self._of_room(sender, room)
        made = self._companions_of[sender] = frozenset(found)
        return made


def is_private(place: DocumentPlace) -> bool:
    """Tell whether what is at a place of an entity is for its own daemon alone, and not for whoever may know it."""
    return place.kind in ("inbox", "challenge")


def may_announce(sender: str, key: str) -> bool:
    """Tell whether a daemon may announce a key: that one of its own entities is there in a room."""
    place = place_of(key)
    return (
        place is not None
        and place.kind == "ephemeral"
        and place.entity_id is not None
        and entity_domain(place.entity_id) == sender
    )


def place_of(key: str) -> DocumentPlace | None:
    """Return what a key says; None for one that no daemon uses, such as one with a wildcard."""
    for end in _ENDS:
        key = key.removesuffix(end)
    try:
        return parse_doc_id(key)
    except Refused:
        return None


def held_by(statement: RoomStatement) -> int:
    """Return about how many bytes a statement holds in memory."""
    homes = statement.homes
    return STATEMENT_BYTES + HOME_BYTES * sum(map(len, (homes.writers, homes.readers, homes.managers)))
