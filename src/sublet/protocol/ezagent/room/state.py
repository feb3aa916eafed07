"""What a room's config says once it is decided who was allowed to write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.room.ancestry import KnownWrites
from sublet.protocol.ezagent.room.seen import CONFIG, Seen, covers
from sublet.protocol.ezagent.yjs.update import ItemId, Value


class Role(StrEnum):
    """What a member is; ``LEFT`` stands where somebody has left or was removed."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    LEFT = "left"


class Policy(StrEnum):
    """How somebody becomes a member (ezagent 4.2)."""

    OPEN = "open"
    KNOCK = "knock"
    INVITE = "invite"


_POLICIES: Final = {policy.value: policy for policy in Policy}
ROLES: Final = {role.value: role for role in Role}


ROLE_POWER: Final[Mapping[Role, int]] = MappingProxyType(
    {Role.OWNER: 100, Role.ADMIN: 50, Role.MEMBER: 0, Role.LEFT: -1}
)
NO_POWER: Final = -1
DEFAULT_ADMIN_LEVEL: Final = 50
DEFAULT_EXT_LEVEL: Final = 50
MAX_LEVELS_KEPT: Final = 32
MAX_REMOVALS: Final = 128
"""Of one entity of a room; who was removed as often comes back no more."""
MAX_GRANTS: Final = 256
"""Of one entity of a room, among them changes of its role."""


@dataclass(frozen=True, slots=True)
class Level:
    """A level that was written, and what its writer had seen; for that, the level ``before`` holds."""

    value: int
    seen: Seen | None = None
    before: Level | None = None

    def at(self, doc: str, item: ItemId) -> Level | None:
        """Return the level that held when an item was written; None where that was before any."""
        level: Level | None = self
        while level is not None and level.seen is not None and covers(level.seen, doc, item):
            level = level.before
        return level

    def after(self, before: Level | None) -> Level:
        """Return this level with the one before it; of those ``MAX_LEVELS_KEPT`` are known."""
        kept = [before] if before is not None else []
        while kept and len(kept) < MAX_LEVELS_KEPT and (earlier := kept[-1].before) is not None:
            kept.append(earlier)
        chain: Level | None = None
        for level in reversed(kept):
            chain = Level(level.value, level.seen, chain)
        return Level(self.value, self.seen, chain)


@dataclass(frozen=True, slots=True)
class MembershipGrant:
    """A grant that counts. ``after`` are the removals that its writer knew of."""

    id: ItemId
    role: Role
    by: EntityId
    seen: Seen | None
    after: KnownWrites


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal that counts."""

    id: ItemId
    by: EntityId
    seen: Seen
    banned: bool
    reason: str


@dataclass(slots=True)
class Membership:
    """All that counts about one entity's membership."""

    grants: list[MembershipGrant] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    _holding: list[MembershipGrant] = field(default_factory=list)
    """Grants whose writers knew of every removal."""

    def grant(self, grant: MembershipGrant) -> None:
        """Take a grant that counts."""
        self.grants.append(grant)
        if all(removal.id in grant.after for removal in self.removals):
            self._holding.append(grant)

    def remove(self, removal: Removal) -> None:
        """Take a removal that counts."""
        self.removals.append(removal)
        self._holding = [grant for grant in self._holding if removal.id in grant.after]

    def current(self) -> MembershipGrant | None:
        """Return the grant that holds: one that knew of every removal, the last written of those."""
        return self._holding[-1] if self._holding else None

    def banned(self) -> bool:
        """Tell whether the last removal is a ban."""
        return bool(self.removals) and self.removals[-1].banned

    def counts(self, doc: str, item: ItemId) -> bool:
        """Tell whether an item was written as a member: by every removal's vector, or after a later grant."""
        if not self.grants:
            return False
        first = self.grants[0]
        if first.after.is_first and first.seen is not None and covers(first.seen, doc, item):
            return False  # written before the first grant
        holding = self.current()
        if holding is not None and not (holding.seen is not None and covers(holding.seen, doc, item)):
            return True  # after a return that knew of every removal
        # Who leaves does that as a member: a removal says nothing against the statement that it is itself.
        return all(
            (removal.id == item and doc == CONFIG)
            or covers(removal.seen, doc, item)
            or self._after_return(removal, doc, item)
            for removal in reversed(self.removals)
        )

    def role_at(self, doc: str, item: ItemId) -> Role:
        """Return the role in which an item was written: by the last grant whose writer had not seen the item."""
        later = (grant for grant in reversed(self.grants) if grant.seen is None or not covers(grant.seen, doc, item))
        found = next(later, None)
        return found.role if found is not None else self.grants[0].role

    def _after_return(self, removal: Removal, doc: str, item: ItemId) -> bool:
        return any(
            removal.id in grant.after and not (grant.seen is not None and covers(grant.seen, doc, item))
            for grant in reversed(self.grants)
        )


@dataclass(slots=True)
class RoomState:
    """A room's config as it counts. ``fields`` holds the plain fields by path."""

    room_id: RoomId
    creator: EntityId | None = None
    entities: dict[EntityId, Membership] = field(default_factory=dict)
    users: dict[EntityId, Level] = field(default_factory=dict)
    fields: dict[tuple[str, ...], Value] = field(default_factory=dict)
    levels: dict[str, Level] = field(default_factory=dict)
    owners: dict[EntityId, None] = field(default_factory=dict, compare=False)
    """Entities that have been owners, whoever was one last in front."""

    @property
    def policy(self) -> Policy:
        """Return how somebody becomes a member."""
        value = self.fields.get(("membership", "policy"))
        return _POLICIES.get(value, Policy.INVITE) if isinstance(value, str) else Policy.INVITE

    @property
    def name(self) -> str:
        """Return the room's name."""
        value = self.fields.get(("name",))
        return value if isinstance(value, str) else ""

    @property
    def enabled_extensions(self) -> tuple[str, ...]:
        """Return the ids of the extensions that the room has enabled."""
        value = self.fields.get(("enabled_extensions",))
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def role(self, entity: EntityId) -> Role | None:
        """Return an entity's role, or None where it is no member."""
        membership = self.entities.get(entity)
        grant = membership.current() if membership is not None else None
        return grant.role if grant is not None else None

    def members(self) -> dict[EntityId, Role]:
        """Return every member with its role."""
        found = ((entity, self.role(entity)) for entity in sorted(self.entities))
        return {entity: role for entity, role in found if role is not None}

    def has_other_owner(self, entity: EntityId) -> bool:
        """Tell whether somebody else is an owner."""
        found = next((one for one in self.owners if one != entity and self.role(one) is Role.OWNER), None)
        if found is not None and found != next(iter(self.owners)):
            self.owners = {found: None, **self.owners}  # the next question ends with the first one
        return found is not None

    def level(self, name: str) -> Level:
        """Return one of the room's levels: ``default``, ``events_default``, ``admin``, or that of an extension."""
        return self.levels.get(name) or Level(_default(name))

    def power(self, entity: EntityId) -> int:
        """Return an entity's power, from 0 to 100; ``NO_POWER`` where it is no member."""
        role = self.role(entity)
        if role is None:
            return NO_POWER
        user = self.users.get(entity)
        return user.value if user is not None else max(ROLE_POWER[role], self.level("default").value)

    def counts(self, signer: EntityId, doc: str, item: ItemId, level: str = "events_default") -> bool:
        """Tell whether what ``signer`` wrote counts: as a member, and with the power that ``level`` asked for then.

        Args:
            signer: who has signed it.
            doc: part of the document's id after the room's.
            item: id of the item.
            level: name of the level.
        """
        membership = self.entities.get(signer)
        if membership is None or not membership.counts(doc, item):
            return False
        needed = self.level(level)
        role = self.role(signer)
        if role is None:
            return True  # what a removal covers was written with the power of that time
        asked = needed.at(doc, item)
        return self._power_at(signer, role, doc, item) >= (asked.value if asked is not None else _default(level))

    def was_owner(self, signer: EntityId, doc: str, item: ItemId) -> bool:
        """Tell whether ``signer`` wrote something as a member with the power of an owner.

        What somebody is now says nothing of what they wrote before: a grant that tells what its writer had seen holds
        for what came after that, and so a removal gives nobody a power that they never had.
        """
        membership = self.entities.get(signer)
        if membership is None or not membership.counts(doc, item):
            return False
        user = self.users.get(signer)
        held = user.at(doc, item) if user is not None else None
        power = held.value if held is not None else ROLE_POWER[membership.role_at(doc, item)]
        return power >= ROLE_POWER[Role.OWNER]

    def least_power(self, entity: EntityId) -> int:
        """Return the least power that an entity has had since it is what it is."""
        role, level = self.role(entity), self.users.get(entity)
        if role is None:
            return NO_POWER
        least = max(ROLE_POWER[role], self.level("default").value)
        while level is not None:
            least, level = min(least, level.value), level.before
        return least

    def highest_level(self, name: str) -> int:
        """Return the highest value that one of the room's levels has had."""
        level: Level | None = self.level(name)
        highest = _default(name)
        while level is not None:
            highest, level = max(highest, level.value), level.before
        return highest

    def _power_at(self, signer: EntityId, role: Role, doc: str, item: ItemId) -> int:
        user = self.users.get(signer)
        held = user.at(doc, item) if user is not None else None
        return held.value if held is not None else max(ROLE_POWER[role], self.level("default").value)


def _default(name: str) -> int:
    return {"default": 0, "events_default": 0, "admin": DEFAULT_ADMIN_LEVEL}.get(name, DEFAULT_EXT_LEVEL)
