"""What is subscribed and served on the network: a room's documents, our entities' inboxes, and the keys we know.

A timeline is heard for the current month and the one before; older months are asked for when somebody reads them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from sublet.messaging.ports.network import Network, PeerQuery, Sample
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import ROOT, Channel, channel_key, doc_id

Undo = Callable[[], None]


class Subscriptions:
    """Declares and undeclares; any thread may call.

    Args:
        network: where.
        heard: takes updates.
        asked: takes queries.
        invited: takes what comes to an inbox.
        acknowledged: takes what recipients acknowledge.
        documents: returns the ids of the documents that an entity keeps for all its rooms.
    """

    def __init__(
        self,
        network: Network,
        heard: Callable[[Sample], None],
        asked: Callable[[PeerQuery], None],
        invited: Callable[[PeerQuery], None],
        acknowledged: Callable[[Sample], None],
        documents: Callable[[EntityId], list[str]],
    ) -> None:
        self._network = network
        self._heard = heard
        self._asked = asked
        self._invited = invited
        self._acknowledged = acknowledged
        self._documents = documents
        self._lock = threading.Lock()
        self._rooms: dict[RoomId, list[Undo]] = {}
        self._speakers: dict[RoomId, tuple[EntityId, Undo]] = {}
        self._entities: dict[tuple[str, EntityId], Undo] = {}

    def room(self, room_id: RoomId) -> None:
        """Hear and serve a room's documents, of every month: a writer's clock may be another than ours."""
        with self._lock:
            if room_id not in self._rooms:
                root = f"ezagent/{room_id}"
                heard = (
                    "config/updates",
                    "index/*/updates",
                    "ext/*/updates",
                    "content/*/updates",
                    "content/*/acl/updates",
                    "ext/media/blob-ref/*/updates",
                    "ext/purge/*/updates",
                )
                served = (
                    "config/state",
                    "index/*/state",
                    "ext/*/state",
                    "content/*",
                    "content/*/state",
                    "content/*/acl/state",
                    "ext/media/blob-ref/*/state",
                    "ext/purge/*/state",
                    "delivery",
                    "root",
                )
                self._rooms[room_id] = [self._network.subscribe(f"{root}/{key}", self._heard) for key in heard]
                self._rooms[room_id].append(self._network.subscribe(f"{root}/delivery", self._acknowledged))
                self._rooms[room_id] += [self._network.serve(f"{root}/{key}", self._asked) for key in served]

    def speaker(self, room_id: RoomId, entity: EntityId | None) -> None:
        """Tell what differs from what we have of a room, as the one of ours who states it; None where nobody does."""
        with self._lock:
            known = self._speakers.get(room_id)
            if known is not None and known[0] == entity:
                return
            if known is not None:
                del self._speakers[room_id]
                known[1]()
            if entity is not None and room_id in self._rooms:
                key = doc_id("tree", room_id=room_id, entity_id=entity)
                self._speakers[room_id] = entity, self._network.serve(key, self._asked)

    def leave(self, room_id: RoomId) -> None:
        """Hear and serve a room no more."""
        self.speaker(room_id, None)
        with self._lock:
            undo = self._rooms.pop(room_id, [])
        for one in undo:
            one()

    def own(self, entity: EntityId) -> None:
        """Take the rooms that one of our entities is offered, serve its other devices, and let it show itself.

        It is asked to take a room, so that who offers it knows that it came.
        """
        key = channel_key(doc_id("inbox", entity_id=entity), Channel.UPDATES)
        self._once(("own", entity), lambda: self._network.serve(key, self._invited))
        challenge = doc_id("challenge", entity_id=entity)
        self._once(("challenge", entity), lambda: self._network.serve(challenge, self._asked))
        self.member(entity)

    def member(self, entity: EntityId) -> None:
        """Serve an entity's rooms to it, should it ask."""
        key = doc_id("inbox", entity_id=entity)
        self._once(("inbox", entity), lambda: self._network.serve(key, self._asked))
        self.documents(entity)

    def documents(self, entity: EntityId) -> None:
        """Hear and serve what an entity keeps for all its rooms."""
        for name in self._documents(entity):
            updates, state = channel_key(name, Channel.UPDATES), channel_key(name, Channel.STATE)
            self._once((updates, entity), partial(self._network.subscribe, updates, self._heard))
            self._once((state, entity), partial(self._network.serve, state, self._asked))

    def draft(self, room_id: RoomId, entity: EntityId) -> None:
        """Serve what one of ours has begun to write in a room, to that entity's other devices."""
        key = channel_key(doc_id("draft", room_id=room_id, entity_id=entity), Channel.STATE)
        self._once((key, entity), partial(self._network.serve, key, self._asked))

    def blobs(self) -> None:
        """Serve files to members of rooms that name them."""
        self._once(("blobs", ""), partial(self._network.serve, f"{ROOT}/blob/*", self._asked))

    def known(self, entity: EntityId) -> None:
        """Serve an entity's key, which proves itself, to whoever asks."""
        key = doc_id("pubkey", entity_id=entity)
        self._once(("pubkey", entity), lambda: self._network.serve(key, self._asked))

    def _once(self, key: tuple[str, EntityId], declare: Callable[[], Undo]) -> None:
        with self._lock:
            if key not in self._entities:
                self._entities[key] = declare()
