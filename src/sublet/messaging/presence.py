"""Who is there, on the network: tokens of our own entities, and those of others, who are asked what they are about."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sublet.messaging.engine.backend import Answer, Network, Sample
from sublet.messaging.engine.engine import Engine
from sublet.messaging.engine.ephemeral import AWARENESS, PRESENCE
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id

MAX_FOLLOWED: Final = 256
"""Members of one room whose presence is followed; of more, the first by name."""

Undo = Callable[[], None]


@dataclass(slots=True)
class Company:
    """Who of a room's members is ours, who is not, and of whom a token but no word has come."""

    own: frozenset[EntityId] = frozenset()
    others: frozenset[EntityId] = frozenset()
    silent: list[EntityId] = field(default_factory=list)


def company(engine: Engine, room_id: RoomId) -> Company:
    """Return whose presence matters in a room; nobody's where it is not offered, or none of ours is a member."""
    state = engine.rooms.state(room_id)
    members = set(state.members())
    own = frozenset(members & set(engine.keyring.local))
    declared = engine.registry.datatype_at("ephemeral", PRESENCE) is not None
    if not own or not declared or PRESENCE not in state.enabled_extensions:
        return Company()
    others = frozenset(sorted(members - own)[:MAX_FOLLOWED])
    passing = engine.ephemeral
    silent = [one for one in others if passing.has_token(room_id, one) and passing.said(room_id, one) is None]
    return Company(own, others, silent)


class Presences:
    """Declares and undeclares; any thread may call.

    Args:
        network: where.
        heard: takes what others say.
        asked: takes queries for what ours are about.
        came: told that somebody's token has come or gone.
    """

    def __init__(
        self,
        network: Network,
        heard: Callable[[Sample], None],
        asked: Callable[[Answer], None],
        came: Callable[[RoomId, EntityId, bool], None],
    ) -> None:
        self._network = network
        self._heard = heard
        self._asked = asked
        self._came = came
        self._lock = threading.Lock()
        self._declared: dict[tuple[RoomId, EntityId], list[Undo]] = {}

    def room(self, room_id: RoomId, found: Company) -> None:
        """Be present where ours are members, and follow the others; those who are no members any more no longer."""
        with self._lock:
            wanted = {(room_id, entity) for entity in found.own | found.others}
            gone = [key for key in self._declared if key[0] == room_id and key not in wanted]
            undo = [one for key in gone for one in self._declared.pop(key)]
            for key in sorted(wanted - set(self._declared)):
                declare = self._be if key[1] in found.own else self._follow
                self._declared[key] = declare(*key)
        for one in undo:
            one()
        for key in gone:
            self._came(*key, False)

    def _be(self, room_id: RoomId, entity: EntityId) -> list[Undo]:
        return [
            self._network.serve(_key(AWARENESS, room_id, entity), self._asked),
            self._network.announce(_key(PRESENCE, room_id, entity)),
        ]

    def _follow(self, room_id: RoomId, entity: EntityId) -> list[Undo]:
        return [
            self._network.subscribe(_key(AWARENESS, room_id, entity), self._heard),
            self._network.follow(_key(PRESENCE, room_id, entity), partial(self._came, room_id, entity)),
        ]


def awareness_key(room_id: RoomId, entity: EntityId) -> str:
    """Return the key under which somebody is asked what they are about in a room."""
    return _key(AWARENESS, room_id, entity)


def _key(kind: str, room_id: RoomId, entity: EntityId) -> str:
    return doc_id("ephemeral", room_id=room_id, ext_id=kind, entity_id=entity)
