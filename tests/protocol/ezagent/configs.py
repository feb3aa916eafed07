"""A room's config as several writers make it, for tests: each keeps a replica of its own and tells others by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from sublet.protocol.ezagent.ids import room_id
from sublet.protocol.ezagent.room.fold import evaluate
from sublet.protocol.ezagent.room.seen import seen_value
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.ezagent.room.statements import (
    KNOCKS,
    MEMBERS,
    NESTED_MAP,
    USERS,
    NestedMap,
    Path,
    Statement,
)
from sublet.protocol.ezagent.yjs.update import ItemId, Value

OWNER, ADMIN, BOB, EVE = "@owner:a", "@admin:a", "@bob:a", "@eve:a"
SALT = b"s" * 16
ROOM = room_id(OWNER, 1_771_668_300_000, SALT)


@dataclass
class Writer:
    """One entity with its replica of a room's config."""

    entity: str
    client: int
    clock: int = 0
    founding: bool = False
    known: dict[ItemId, Statement] = field(default_factory=dict)

    def write(self, path: Path, value: Value | NestedMap) -> Statement:
        latest = self.latest(path)
        container = self.latest(path[:-1]) if len(path) > 1 else None
        statement = Statement(
            (self.client, self.clock),
            self.entity,
            path,
            value,
            latest.id if latest else None,
            container.id if container else None,
            self.client * 1_000 + (0 if self.founding else self.clock + 1),
        )
        self.clock += 1
        self.known[statement.id] = statement
        return statement

    def latest(self, path: Path) -> Statement | None:
        found = [statement for statement in self.known.values() if statement.path == path]
        replaced = {statement.origin for statement in found}
        ends = [statement for statement in found if statement.id not in replaced]
        return max(ends, key=lambda statement: statement.id, default=None)

    def found(self, policy: str = "invite") -> None:
        """Open the room, in one update."""
        self.founding = True
        self.write(("created_by",), self.entity)
        self.write(("salt",), SALT.hex())
        for path in (("membership",), MEMBERS, KNOCKS, ("power_levels",), USERS, ("ext",)):
            self.write(path, NESTED_MAP)
        self.write(("membership", "policy"), policy)
        self.write(("membership", "members", self.entity), "owner")
        self.founding = False

    def seen(self) -> dict[str, Value]:
        clocks: dict[int, int] = {}
        for client, clock in self.known:
            clocks[client] = max(clocks.get(client, 0), clock + 1)
        return seen_value({"config": clocks})

    def grant(self, entity: str, role: str = "member", *, seen: bool = False) -> Statement:
        value: Value = {"role": role, "seen": self.seen()} if seen else role
        return self.write(("membership", "members", entity), value)

    def remove(self, entity: str, **more: Value) -> Statement:
        return self.write(("membership", "members", entity), {"role": "left", "seen": self.seen(), **more})

    def power(self, entity: str, level: int) -> Statement:
        return self.write(("power_levels", "users", entity), {"level": level, "seen": self.seen()})

    def hear(self, *others: Writer) -> None:
        for other in others:
            self.known |= other.known

    def state(self) -> RoomState:
        return evaluate(ROOM, self.known.values())

    def roles(self) -> dict[str, str]:
        return {entity: str(role) for entity, role in self.state().members().items()}


def room(policy: str = "invite") -> tuple[Writer, Writer, Writer, Writer]:
    """Return a room of an owner, an admin and Bob, all of whom know it all, and Eve, who is outside and listens."""
    owner, admin, bob, eve = Writer(OWNER, 40), Writer(ADMIN, 30), Writer(BOB, 20), Writer(EVE, 10)
    owner.found(policy)
    owner.grant(ADMIN, "admin")
    owner.grant(BOB)
    for writer in (admin, bob, eve):
        writer.hear(owner)
    return owner, admin, bob, eve
