"""Which rooms are here: their updates are accepted, and whoever is in them is somebody we meet.

Rules: a room is taken up because one of ours wants it, never because a peer sends something of it. A room that was
forgotten is taken up again only once all of it is removed. Weak: a daemon in thousands of rooms walks all of them to
tell whether it meets a stranger.
"""

from __future__ import annotations

from collections.abc import Callable

from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.room.state import RoomState


class RoomsHere:
    """The rooms whose updates are accepted.

    Args:
        store: which rooms were here before.
        states: who is in them.
        keyring: which entities are ours.
    """

    def __init__(self, store: Store, states: RoomStates, keyring: Keyring) -> None:
        self._store = store
        self._states = states
        self._keyring = keyring
        self.ids: set[RoomId] = set(store.rooms())
        self.listeners: list[Callable[[RoomId], None]] = []
        """Told of each room that is taken up since somebody here looks for it, and so has to be attended to."""
        self.agreed: list[Callable[[RoomId], None]] = []
        """Told of each room that is taken up."""
        self.let_go: list[Callable[[RoomId], None]] = []
        """Told of each room that is here no more."""

    def want(self, room_id: RoomId) -> None:
        """Accept updates of a room from now on."""
        if room_id not in self.ids:
            self._take_up_again(room_id)
            self.ids.add(room_id)
            for listener in (*self.listeners, *self.agreed):
                listener(room_id)

    def drop(self, room_id: RoomId) -> None:
        """Accept no more updates of a room whose removal begins; inside no transaction."""
        with self._store.transaction():
            self._store.removal.begin(room_id)
        self.ids.discard(room_id)
        for listener in self.let_go:
            listener(room_id)

    def of(self, entity: EntityId) -> list[RoomState]:
        """Return the states of the rooms that an entity is a member of, by id."""
        states = (self._states.state(room) for room in sorted(self.ids))
        return [state for state in states if state.role(entity) is not None]

    def is_member(self, entity: EntityId, room_id: RoomId) -> bool:
        """Tell whether an entity is a member of a room that is here; ``room_id`` may be whatever somebody wrote."""
        return room_id in self.ids and self._states.state(room_id).role(entity) is not None

    def meets(self, entity: EntityId) -> bool:
        """Tell whether an entity is one of ours, or a member of a room that is here."""
        return entity in self._keyring.local or any(self.is_member(entity, room) for room in self.ids)

    def _take_up_again(self, room_id: RoomId) -> None:
        """Let a room that was forgotten be here again, once all of it is gone."""
        if self._store.removal.is_forgotten(room_id):
            with self._store.transaction():
                while self._store.removal.step():
                    pass
                self._store.removal.forgive(room_id)
            self._states.changed(room_id)
