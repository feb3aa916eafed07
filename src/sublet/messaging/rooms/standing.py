"""Who of a room's members has taken up the invitation, as those who invite see it.

A grant is all that a room's config says, so an invitation that nobody has answered looks there like a membership. A
member is there once it has shown it: by what it has written, or by an acknowledgement that its daemon has signed.
Whoever declines leaves the room before that, and says so.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.room.state import RoomState

JOINED: Final = "joined"
"""Index of who has shown to be in a room."""
DELIVERED: Final = "delivered"
"""Index of what recipients have acknowledged."""
DECLINED_REASON: Final = "the invitation was declined"
INVITED_EVENT: Final = "room.invited"
"""Ours are invited into a room that is not here."""
JOINED_EVENT: Final = "room.invitation.accepted"
"""Somebody of elsewhere has shown to be in a room."""
PENDING: Final = "pending"
DECLINED: Final = "declined"


def has_joined(store: Store, room_id: RoomId, entity: EntityId) -> bool:
    """Tell whether a member of elsewhere has shown to be in a room."""
    return _is_noted(store, room_id, entity) or entity in store.trust.writers(room_id)


def joined_entry(room_id: RoomId, entity: EntityId, now_ms: int) -> IndexEntry:
    """Return what is kept of somebody who has shown to be in a room."""
    return IndexEntry(JOINED, f"{room_id}/{entity}", JOINED, {"at_ms": now_ms})


def pending(store: Store, state: RoomState, ours: Collection[EntityId]) -> list[EntityId]:
    """Return the members of elsewhere who were brought in by others and have not shown to be there yet."""
    waiting = [
        entity
        for entity in state.members()
        if entity not in ours and was_invited(state, entity) and not _is_noted(store, state.room_id, entity)
    ]
    written = store.trust.writers(state.room_id) if waiting else ()  # for all at once: it looks at the whole room
    return [entity for entity in waiting if entity not in written]


def invited(store: Store, state: RoomState, ours: Collection[EntityId]) -> dict[EntityId, str]:
    """Return what became of invitations that did not end in a membership: ``PENDING`` or ``DECLINED``, by entity."""
    found = dict.fromkeys(pending(store, state, ours), PENDING)
    for entity, membership in state.entities.items():
        last = membership.removals[-1] if membership.removals else None
        if last is not None and membership.current() is None and last.by == entity and last.reason == DECLINED_REASON:
            found[entity] = DECLINED
    return found


def was_withdrawn(store: Store, state: RoomState, entity: EntityId) -> bool:
    """Tell whether somebody was taken out of a room again before showing to be there."""
    membership = state.entities.get(entity)
    if membership is None or not membership.grants or not membership.removals or membership.current() is not None:
        return False  # also of who was never asked in, and is only kept out
    return membership.removals[-1].by != entity and not has_joined(store, state.room_id, entity)


def was_invited(state: RoomState, entity: EntityId) -> bool:
    """Tell whether a member was brought in by somebody else."""
    membership = state.entities.get(entity)
    grant = membership.current() if membership is not None else None
    return grant is not None and grant.by != entity and entity != state.creator


def _is_noted(store: Store, room_id: RoomId, entity: EntityId) -> bool:
    key = f"{room_id}/{entity}"
    return bool(store.scan_index(JOINED, key, 1) or store.scan_index(DELIVERED, key, 1))
