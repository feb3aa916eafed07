"""Decides the states of rooms from their configs' logs, and keeps them until the config changes.

Rules: a state is a function of the set of statements, whatever their order. Of most members everything counts, which is
told without looking at clocks. Weak: a changed config is decided anew as a whole; see ``config_gathering.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sublet.messaging.documents.sequence import in_order
from sublet.messaging.ports.rows import WriteRow
from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.room.fold import evaluate
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.ezagent.room.statements import NESTED_MAP, NestedMap, Path, Statement
from sublet.protocol.ezagent.yjs.reader import Reader
from sublet.protocol.ezagent.yjs.update import ItemId, Value


class RoomStates:
    """Rooms that have a config here.

    Args:
        store: where the configs' writes are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._states: dict[RoomId, RoomState] = {}
        self._plain: dict[RoomId, frozenset[EntityId]] = {}
        self._lengths: dict[RoomId, int] = {}
        self._before: dict[RoomId, frozenset[EntityId]] = {}

    def state(self, room_id: RoomId) -> RoomState:
        """Return a room's state; one without anybody in it where no config is here."""
        found = self._states.get(room_id)
        if found is None:
            statements = self.statements(room_id)
            self._lengths[room_id] = len(statements)
            found = self._states[room_id] = evaluate(room_id, statements)
        return found

    def length(self, room_id: RoomId) -> int:
        """Return how many statements a room's config had when its state was decided last; 0 if it never was."""
        return self._lengths.get(room_id, 0)

    def changed(self, room_id: RoomId) -> RoomState | None:
        """Forget what a room's config said; return what it was, if that was known."""
        self._plain.pop(room_id, None)
        before = self._states.pop(room_id, None)
        if before is not None:
            self._before[room_id] = self._before.get(room_id, frozenset()).union(before.members())
        return before

    def members_before(self, room_id: RoomId) -> frozenset[EntityId]:
        """Return who was a member before a room's config has changed, since ``forget_before``."""
        return self._before.get(room_id, frozenset())

    def forget_before(self) -> None:
        """Forget who were members before, once all have been told of what has changed."""
        self._before.clear()

    def forget(self) -> None:
        """Forget all states, to be decided anew."""
        self._states.clear()
        self._plain.clear()
        self._lengths.clear()
        self._before.clear()

    def always_counts(self, room_id: RoomId, signer: EntityId) -> bool:
        """Tell quickly whether all that a member writes counts: never removed, never outside, with power enough."""
        plain = self._plain.get(room_id)
        if plain is None:
            state = self.state(room_id)
            needed = state.highest_level("events_default")
            plain = self._plain[room_id] = frozenset(
                entity
                for entity, membership in state.entities.items()
                if not membership.removals
                and membership.grants
                and membership.grants[0].seen is None
                and state.least_power(entity) >= needed
            )
        return signer in plain

    def counts(self, room_id: RoomId, signer: EntityId, part: str, item: ItemId, level: str = "events_default") -> bool:
        """Tell whether what somebody wrote counts; see ``RoomState.counts``."""
        if level == "events_default" and self.always_counts(room_id, signer):
            return True
        return self.state(room_id).counts(signer, part, item, level)

    def statements(self, room_id: RoomId) -> list[Statement]:
        """Return every write of a room's config, those of one key in the order of the CRDT; none of one forgotten."""
        if self._store.removal.is_forgotten(room_id):
            return []
        row = self._store.find_document(doc_id("config", room_id=room_id))
        return statements_of(self._store.writes(row.number, None)) if row is not None else []


def statements_of(rows: Sequence[WriteRow]) -> list[Statement]:
    """Return the writes of a map document as statements."""
    paths: dict[ItemId, Path] = {}
    by_key: dict[tuple[ItemId | None, str], list[Statement]] = {}
    rights: dict[ItemId, ItemId | None] = {}
    for row in rows:
        above = paths.get(row.container, ()) if row.container is not None else ()
        id, path = (row.client, row.clock), (*above, row.key)
        value: Value | NestedMap = NESTED_MAP if row.value is None else Reader(row.value).value()
        if row.value is None:
            paths[id] = path
        rights[id] = row.right
        by_key.setdefault((row.container, row.key), []).append(
            Statement(id, row.signer, path, value, row.origin, row.container, row.seq)
        )
    return [
        statement
        for group in by_key.values()
        for statement in in_order([(item.id, item.origin, rights[item.id], item) for item in group])
    ]
