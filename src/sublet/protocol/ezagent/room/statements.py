"""One write to a room's config, as the log tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from sublet.protocol.ezagent.ids import ROOM_SALT_BYTES, EntityId, RoomId, room_id
from sublet.protocol.ezagent.room.seen import Seen, parse_seen
from sublet.protocol.ezagent.room.state import ROLES, Role
from sublet.protocol.ezagent.yjs.update import ItemId, Value

Path: TypeAlias = tuple[str, ...]

MEMBERS: Final = ("membership", "members")
KNOCKS: Final = ("membership", "knocks")
USERS: Final = ("power_levels", "users")
"""The nested maps of a config; its creator makes them with the room, so that no first write of anybody is lost."""


class NestedMap:
    """Stands for the value of a write that makes a nested map."""


NESTED_MAP: Final = NestedMap()


@dataclass(frozen=True, slots=True)
class Statement:
    """A write of one key.

    ``origin`` is the write that it replaces, so also what its writer knew of that key.
    ``container`` is the item of the nested map that it was written to; None for the root.
    ``update`` is the same number for all that was written in one update, and another for all else.
    """

    id: ItemId
    signer: EntityId
    path: Path
    value: Value | NestedMap
    origin: ItemId | None
    container: ItemId | None
    update: int

    @property
    def subject(self) -> EntityId:
        """Return the entity that a statement about a member, a knock or a power is about."""
        return self.path[-1]

    @property
    def seen(self) -> Seen | None:
        """Return what its writer had seen, where it tells."""
        return parse_seen(self.value.get("seen")) if isinstance(self.value, dict) else None

    @property
    def role(self) -> Role | None:
        """Return the role that a statement about a member gives, or None where it gives none."""
        text = self.value.get("role") if isinstance(self.value, dict) else self.value
        return ROLES.get(text) if isinstance(text, str) else None

    @property
    def level(self) -> int | None:
        """Return the level that a statement about power sets, or None where it sets none."""
        number = self.value.get("level") if isinstance(self.value, dict) else self.value
        return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= 100 else None

    def about_member(self) -> bool:
        """Tell whether it grants or ends a membership."""
        return len(self.path) == 3 and self.path[:2] == MEMBERS

    def restricts(self) -> bool:
        """Tell whether it may take power from its subject."""
        return (self.about_member() and self.role is Role.LEFT) or (len(self.path) == 3 and self.path[:2] == USERS)


def genesis(room: RoomId, statements: Iterable[Statement]) -> Statement | None:
    """Return the statement of who has opened the room; None where none is proven by the room's id."""
    found = founding(room, statements)
    return found[0] if found is not None else None


def founding(room: RoomId, statements: Iterable[Statement]) -> tuple[Statement, bytes] | None:
    """Return the statement of who has opened the room, and the salt of its id; None as for ``genesis``."""
    salts: dict[int, Value | NestedMap] = {}
    claims: list[Statement] = []
    for statement in statements:
        if statement.path == ("salt",):
            salts.setdefault(statement.id[0], statement.value)
        elif statement.path == ("created_by",) and statement.value == statement.signer:
            claims.append(statement)
    at_ms = int(room.replace("-", "")[:12], 16)
    for claim in sorted(claims, key=lambda claim: claim.id):
        salt = _salt(salts.get(claim.id[0]))
        if salt is not None and room_id(claim.signer, at_ms, salt) == room:
            return claim, salt
    return None


def _salt(value: Value | NestedMap) -> bytes | None:
    if not isinstance(value, str) or len(value) != 2 * ROOM_SALT_BYTES:
        return None
    try:
        return bytes.fromhex(value)
    except ValueError:
        return None
