"""Counts how often agents have taken turns in a room since a person spoke there, whoever they say that they answer.

What counts is who has signed which message, in the order of the room, so every daemon counts alike. A room's config
says at how many turns a conversation without a person ends (``timeline.max_agent_turns``). Weak: agents that only tell
of their work in turns count like agents that answer each other; ten minutes without a word end a conversation too.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from sublet.messaging.builtins.config_values import MAX_AGENT_TURNS
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.room_order import RoomOrder
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.ezagent.identity import EntityKind
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.order import stands_at_ms
from sublet.protocol.ezagent.yjs.update import ItemId

DEFAULT_TURNS: Final = 64
FORGOTTEN_SECONDS: Final = 600.0
"""After which what was said last is not what the next message answers."""
MAX_LOOKED_AT: Final = 4_096
"""Messages that are looked through where nothing of a room is known, as after a start."""
MAX_ROOMS: Final = 1_024


class DepthParts(Protocol):
    """The parts of the engine for counting turns."""

    @property
    def keyring(self) -> Keyring: ...

    @property
    def order(self) -> RoomOrder: ...

    @property
    def reading(self) -> Reading: ...

    @property
    def rooms(self) -> RoomStates: ...


@dataclass(slots=True)
class _Talk:
    """A conversation up to a message."""

    last: tuple[str, ItemId]
    speaker: EntityId | None = None
    """The agent that has spoken last; None where that was a person, or nobody."""
    turns: int = 0
    at_ms: int = 0


class Depths:
    """Turns of agents, by room; used on the engine's thread."""

    def __init__(self) -> None:
        self._talks: OrderedDict[RoomId, _Talk] = OrderedDict()

    def turns(self, engine: DepthParts, room_id: RoomId, author: EntityId | None, now_ms: int) -> int:
        """Return how many turns of agents a room has had since a person spoke.

        Args:
            engine: the engine.
            room_id: the room.
            author: an agent that speaks next, whose turn counts too; None for nobody.
            now_ms: the time, Unix milliseconds.
        """
        talk = self._up_to_now(engine, room_id)
        if talk is None or talk.speaker is None or now_ms - talk.at_ms > FORGOTTEN_SECONDS * 1_000:
            return 0
        return talk.turns + (author is not None and author != talk.speaker)

    def _up_to_now(self, engine: DepthParts, room_id: RoomId) -> _Talk | None:
        known = self._talks.get(room_id)
        new: list[tuple[str, ItemId, EntityId, int]] = []
        found = False
        for document, node in islice(engine.order.backwards(room_id), MAX_LOOKED_AT):
            if known is not None and known.last == (document.row.doc_id, node.id):
                found = True
                break
            if engine.reading.counts(document, node):
                new.append((document.row.doc_id, node.id, node.signer, stands_at_ms(node.rank)))
                if kind_of(engine, node.signer) is EntityKind.HUMAN:
                    break
        talk = known if found else None
        for name, item, signer, at_ms in reversed(new):
            talk = _next(talk, (name, item), signer, at_ms, kind_of(engine, signer))
        if talk is not None:
            self._talks[room_id] = talk
            self._talks.move_to_end(room_id)
            while len(self._talks) > MAX_ROOMS:
                self._talks.popitem(last=False)
        return talk


def limit_of(rooms: RoomStates, room_id: RoomId) -> int:
    """Return at how many turns a conversation of agents ends in a room, as its config says."""
    timeline = rooms.state(room_id).fields.get(("timeline",))
    limit = timeline.get("max_agent_turns") if isinstance(timeline, dict) else None
    whole = isinstance(limit, int) and not isinstance(limit, bool)
    return limit if whole and isinstance(limit, int) and 0 < limit <= MAX_AGENT_TURNS else DEFAULT_TURNS


def kind_of(engine: _KnowsKinds, entity: EntityId) -> EntityKind:
    """Return what an entity is; who is not known yet counts as an agent."""
    record = engine.keyring.record(entity)
    return record.kind if record is not None else EntityKind.AGENT


class _KnowsKinds(Protocol):
    @property
    def keyring(self) -> Keyring: ...


def _next(talk: _Talk | None, last: tuple[str, ItemId], signer: EntityId, at_ms: int, kind: EntityKind) -> _Talk:
    """Return a conversation with one message more."""
    if talk is None or at_ms - talk.at_ms > FORGOTTEN_SECONDS * 1_000:
        talk = _Talk(last)
    talk.last, talk.at_ms = last, at_ms
    if kind is EntityKind.AGENT:
        talk.turns += talk.speaker is not None and talk.speaker != signer
        talk.speaker = signer
    elif kind is EntityKind.HUMAN:
        talk.turns, talk.speaker = 0, None
    return talk
