"""From the statements of a config to the state that counts: a function of their set, whatever order they came in.

Statements are taken in one order that every peer finds alike: what a statement is known to follow comes first, then
what takes power, then by id. Each is checked by the table against the state so far. Then what a removal or a lowered
power does not cover is struck out, the most powerful writer's first, and all is taken again, until nothing more is.
Nobody can strike out what somebody of more power wrote, so this ends, and the same way everywhere.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.room.ancestry import Ancestry, KnownWrites
from sublet.protocol.ezagent.room.seen import CONFIG, Seen, covers
from sublet.protocol.ezagent.room.state import NO_POWER, Level, Membership, MembershipGrant, Removal, Role, RoomState
from sublet.protocol.ezagent.room.statements import MEMBERS, USERS, NestedMap, Statement, genesis
from sublet.protocol.ezagent.room.table import ENCRYPTION, level_of, power_needed
from sublet.protocol.ezagent.sealing.levels import is_raise
from sublet.protocol.ezagent.yjs.update import ItemId

MAX_REASON_CHARS: Final = 500
MAX_TURNS: Final = 32
"""In which restrictions strike out one by one; in as many more they do at once, and then nothing is struck out."""
FOUNDING_POWER: Final = 101
"""That of statements that open a room: more than anybody has later."""
RETRIES_OF_STATEMENT: Final = 64
"""How often on average a statement is tried again whose writer was not let in yet."""


def evaluate(room: RoomId, statements: Iterable[Statement]) -> RoomState:
    """Return the state of a room's config.

    Args:
        room: id of the room.
        statements: every write of its config's log; for each key, in the order that the CRDT gives them.
    """
    known = {statement.id: statement for statement in statements}
    start = genesis(room, known.values())
    if start is None:
        return RoomState(room)
    placed = _placed(known, start)
    order = _order(placed)
    ancestry = Ancestry({id: statement.origin for id, statement in placed.items()})
    struck: set[ItemId] = set()
    for turn in itertools.count():
        fold = _Fold(room, start, ancestry, placed)
        fold.take_all([statement for statement in order if statement.id not in struck])
        more = fold.uncovered(every=turn >= MAX_TURNS) if turn < 2 * MAX_TURNS else set()
        if not more:
            break
        struck |= more
    return fold.finished(list(placed.values()))


def _founding(statement: Statement, start: Statement) -> bool:
    """Tell whether a statement came in the update that opened the room, in which its creator may write anything."""
    return statement.update == start.update and statement.id[0] == start.id[0]


def _placed(known: Mapping[ItemId, Statement], start: Statement) -> dict[ItemId, Statement]:
    """Leave out what stands in a nested map that is not the room's own."""

    def own(item: ItemId | None) -> bool:
        if item is None:
            return True
        holder = known.get(item)
        if holder is None or not isinstance(holder.value, NestedMap) or not own(holder.container):
            return False
        return _founding(holder, start) or holder.path[0] == "ext"

    return {id: statement for id, statement in known.items() if own(statement.container)}


def _order(statements: Mapping[ItemId, Statement]) -> list[Statement]:
    """Return the statements in the one order that all peers find."""
    by_client: dict[int, list[int]] = {}
    for client, clock in sorted(statements):
        by_client.setdefault(client, []).append(clock)
    waits: dict[ItemId, int] = dict.fromkeys(statements, 0)
    follow: dict[ItemId, list[ItemId]] = {}

    def after(earlier: ItemId, later: ItemId) -> None:
        if earlier in statements and earlier != later:
            follow.setdefault(earlier, []).append(later)
            waits[later] += 1

    for client, clocks in by_client.items():
        for earlier, later in itertools.pairwise(clocks):
            after((client, earlier), (client, later))
    for statement in statements.values():
        if statement.origin is not None:
            after(statement.origin, statement.id)
        if statement.container is not None:
            after(statement.container, statement.id)
        seen = statement.seen
        for client, upto in (seen.get(CONFIG, {}) if seen is not None else {}).items():
            clocks = by_client.get(client, [])
            if covered := bisect_left(clocks, upto):
                after((client, clocks[covered - 1]), statement.id)
    ready = [(_rank(statements[id]), id) for id, count in waits.items() if count == 0]
    heapq.heapify(ready)
    left = set(statements)
    first = iter(sorted((_rank(statements[id]), id) for id in statements))
    order: list[Statement] = []
    while left:
        if not ready:  # somebody claims to have seen what follows their own write: break that at one place, alike
            ready = [next(one for one in first if one[1] in left)]
        taken = heapq.heappop(ready)[1]
        if taken not in left:
            continue
        left.discard(taken)
        order.append(statements[taken])
        for next_one in follow.get(taken, ()):
            waits[next_one] -= 1
            if waits[next_one] == 0 and next_one in left:
                heapq.heappush(ready, (_rank(statements[next_one]), next_one))
    return order


def _lets_in(statement: Statement) -> bool:
    """Tell whether a statement may change what others may write."""
    path = statement.path
    about = statement.about_member() or path[:2] == USERS or path == ("membership", "policy")
    return about or level_of(path) is not None


def _rank(statement: Statement) -> int:
    return 0 if statement.restricts() else 1


class _Taken(NamedTuple):
    """A statement that counts: the power that its signer had, and the least that it took."""

    statement: Statement
    power: int
    needed: int


class _Fold:
    """The state while statements are taken in order."""

    def __init__(
        self, room: RoomId, start: Statement, ancestry: Ancestry, statements: Mapping[ItemId, Statement]
    ) -> None:
        self.state = RoomState(room, start.signer)
        self._ancestry = ancestry
        self._statements = statements
        self._start = start
        self._effective: dict[ItemId, _Taken] = {}

    def take_all(self, statements: Sequence[Statement]) -> None:
        """Let statements count, in order; one whose writer is let in by a later one counts right after that."""
        waiting: list[Statement] = []
        left = RETRIES_OF_STATEMENT * len(statements)
        for statement in statements:
            if not self._take(statement):
                waiting.append(statement)
                continue
            changed = _lets_in(statement)
            while changed and left > 0:
                left -= len(waiting)
                found = next((index for index, late in enumerate(waiting) if self._take(late)), None)
                if found is None:
                    break
                del waiting[found]

    def _take(self, statement: Statement) -> bool:
        """Let a statement count if its writer may make it, and tell whether they may."""
        if _founding(statement, self._start):
            needed, power = NO_POWER, FOUNDING_POWER
        else:
            found, power = power_needed(statement, self.state), self.state.power(statement.signer)
            if found is None or power < found or not self._written_inside(statement):
                return False
            needed = found
        self._effective[statement.id] = _Taken(statement, power, needed)
        path = statement.path
        if statement.about_member():
            self._member(statement)
        elif len(path) == 3 and path[:2] == USERS and statement.level is not None:
            before = self.state.users.get(statement.subject)
            self.state.users[statement.subject] = Level(statement.level, statement.seen).after(before)
        elif (name := level_of(path)) is not None and statement.level is not None:
            self.state.levels[name] = Level(statement.level, statement.seen).after(self.state.levels.get(name))
        elif path == ("membership", "policy") and not isinstance(statement.value, NestedMap):
            self.state.fields[path] = statement.value
        elif path == ENCRYPTION and is_raise(statement.value, self.state.fields.get(path)):
            self.state.fields[path] = str(statement.value)
        return True

    def _written_inside(self, statement: Statement) -> bool:
        """Tell whether a member wrote it as a member, not before; of who is none, the table decides."""
        membership = self.state.entities.get(statement.signer)
        if membership is None or membership.current() is None:
            return True
        return membership.counts(CONFIG, statement.id)

    def _member(self, statement: Statement) -> None:
        role, seen = statement.role, statement.seen
        if role is None:
            return
        membership = self.state.entities.setdefault(statement.subject, Membership())
        if role is not Role.LEFT:
            known = KnownWrites(self._ancestry, statement.id, statement.origin not in self._statements)
            membership.grant(MembershipGrant(statement.id, role, statement.signer, seen, known))
            if role is Role.OWNER:
                self.state.owners[statement.subject] = None
            return
        value = statement.value if isinstance(statement.value, dict) else {}
        reason = value.get("reason")
        membership.remove(
            Removal(
                statement.id,
                statement.signer,
                seen if seen is not None else {},
                value.get("banned") is True,
                reason[:MAX_REASON_CHARS] if isinstance(reason, str) else "",
            )
        )

    def uncovered(self, *, every: bool) -> set[ItemId]:
        """Return what the most powerful restriction strikes out, of those that strike out anything.

        Args:
            every: return what all of them strike out.
        """
        all_struck: set[ItemId] = set()
        by_signer: dict[EntityId, list[_Taken]] = {}
        for taken in self._effective.values():
            by_signer.setdefault(taken.statement.signer, []).append(taken)
        restrictions = [taken for taken in self._effective.values() if self._takes_power(taken.statement)]
        restrictions.sort(key=lambda taken: (-taken.power, taken.statement.id))
        outside: dict[ItemId, bool] = {}
        for restriction, power, _ in restrictions:
            seen, id = restriction.seen, restriction.id
            own = restriction.signer == restriction.subject
            struck = {
                taken.statement.id
                for taken in by_signer.get(restriction.subject, ())
                if (taken.statement.id != id and taken.power < power) or (own and taken.statement.id[1] > id[1])
                if self._void(restriction, seen, taken, outside)
            }
            if struck and not every:
                return struck
            all_struck |= struck
        return all_struck

    def _takes_power(self, statement: Statement) -> bool:
        if statement.about_member():
            return statement.role is Role.LEFT
        return statement.restricts() and statement.signer != statement.subject

    def _void(self, restriction: Statement, seen: Seen | None, taken: _Taken, outside: dict[ItemId, bool]) -> bool:
        """Tell whether a restriction that has seen so much strikes out a statement.

        Args:
            restriction: takes power from the one who made the statement.
            seen: what its writer had seen.
            taken: the statement of its subject.
            outside: whether statements were written by no member, as far as that was asked before.
        """
        statement = taken.statement
        if seen is not None and covers(seen, CONFIG, statement.id):
            return False
        if restriction.path[:2] == USERS:
            # Less power is not none: what it still reaches stays, and what it reached is asked of the state of then,
            # since in this one a guest has come in already, and who was raised is as powerful as that.
            return self.state.users[restriction.subject].value < taken.needed
        found = outside.get(statement.id)
        if found is None:
            membership = self.state.entities.get(restriction.subject)
            found = membership is not None and not membership.counts(CONFIG, statement.id)
            outside[statement.id] = found
        return found

    def finished(self, statements: Sequence[Statement]) -> RoomState:
        """Return the state, with the plain fields as the CRDT orders the writes that count."""
        for statement in statements:
            if statement.id in self._effective and not isinstance(statement.value, NestedMap):
                if statement.path == ENCRYPTION and not is_raise(statement.value, self.state.fields.get(ENCRYPTION)):
                    continue  # of those that were written at the same time, the strongest holds
                self.state.fields[statement.path] = statement.value
        for path in [path for path, value in self.state.fields.items() if value is None or path[:2] == MEMBERS]:
            del self.state.fields[path]
        return self.state
