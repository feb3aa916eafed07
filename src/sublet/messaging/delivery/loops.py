"""Stops agents that keep answering each other, before anything is written. Never stops people (DESIGN 6.9, case C37).

How many agents have answered each other before a message travels in it as ``ext.hops``, under its author's signature.
An agent that leaves it out, or counts anew, gains nothing with one that counts: what that has counted stands too.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final, Protocol

from sublet.messaging.builtins.timeline import HOPS, backwards, hops_of
from sublet.messaging.declaring.operating import OperationContext, OperationParts
from sublet.messaging.delivery.depths import FORGOTTEN_SECONDS, Depths, limit_of
from sublet.messaging.delivery.depths import kind_of as _kind
from sublet.messaging.events.events import Events
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.room_order import RoomOrder
from sublet.messaging.ports.rows import EventRow
from sublet.messaging.ports.store import Store
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.fields import Fields, FieldsView
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.identity import EntityKind
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId, is_ref_id
from sublet.protocol.times import unix_ms

MAX_LOOKED_AT: Final = 64
"""Messages of a conversation that are looked through for what an agent answers."""
_NEW: Final = "message.new"
MAX_PAIRS: Final = 4_096
WINDOW_SECONDS: Final = 60.0
MAX_CHAIN_SHOWN: Final = 8
ENDED_EVENT: Final = "room.agents_ended"
"""Told in a room where agents have taken as many turns without a person as its config allows."""


class LoopParts(Protocol):
    """The parts of the engine for bounding loops of agents."""

    @property
    def events(self) -> Events: ...

    @property
    def here(self) -> RoomsHere: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def now_ms(self) -> Callable[[], int]: ...

    @property
    def operating(self) -> OperationParts: ...

    @property
    def order(self) -> RoomOrder: ...

    @property
    def reading(self) -> Reading: ...

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def store(self) -> Store: ...


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """How far agents may go by themselves.

    Args:
        max_hops: messages of agents that answer each other in a row.
        per_minute: messages of one agent to another one in a minute.
    """

    max_hops: int
    per_minute: int


class Loops:
    """Counts hops and messages; used on the engine's thread.

    Args:
        limits: how far agents may go.
    """

    def __init__(self, limits: LoopLimits) -> None:
        self._limits = limits
        self._sent: OrderedDict[tuple[EntityId, EntityId], deque[int]] = OrderedDict()
        self._depths = Depths()
        self._ended: OrderedDict[RoomId, None] = OrderedDict()
        """Rooms in which it was told that agents have come to the end of their conversation."""

    def admit(self, engine: LoopParts, author: EntityId, arguments: FieldsView) -> Fields:
        """Return the arguments of a ``message.send`` with the hops that it has behind it.

        Args:
            engine: the engine.
            author: one of ours.
            arguments: as they were given.

        Raises:
            SubletError: ``LOOP_REFUSED``: agents have answered each other often enough; ``UNAVAILABLE``: an agent sends
                too much to another one. Nothing is written.
        """
        given, ext = dict(arguments), dict(arguments.get("ext") or {})
        ext.pop(HOPS, None)
        room_id = given.get("room_id")
        if (
            _kind(engine, author) is EntityKind.AGENT
            and isinstance(room_id, str)
            and engine.here.is_member(author, room_id)
        ):
            hops, chain = self._hops(engine, author, room_id, ext)
            if hops > self._limits.max_hops:
                shown = " → ".join([*chain[:MAX_CHAIN_SHOWN][::-1], author])
                raise SubletError(
                    LocalCode.LOOP_REFUSED,
                    f"agents have answered each other {self._limits.max_hops} times in a row: … → {shown}",
                    "Nothing was sent. A person's message begins anew; tell your person what is open.",
                )
            self._check_turns(engine, author, room_id)
            self._count(engine, author, room_id)
            if hops:
                ext[HOPS] = hops
        if ext or "ext" in given:
            given["ext"] = ext
        return given

    def hears(self, engine: LoopParts, entity: EntityId) -> Callable[[EventRow], bool]:
        """Return what tells whether news wakes an entity: agents are not woken by what has gone too far already."""
        if _kind(engine, entity) is not EntityKind.AGENT:
            return lambda _: True

        def wakes(row: EventRow) -> bool:
            hops = row.data.get(HOPS, 0)
            if isinstance(hops, int) and hops > self._limits.max_hops:
                return False
            room_id = row.room_id if row.kind == _NEW else None
            return room_id is None or not self._is_over(engine, room_id, None)

        return wakes

    def told(self, engine: LoopParts, rows: Iterable[EventRow]) -> None:
        """Tell in a room, once, that agents have come to the end of their conversation there."""
        for room_id in {row.room_id for row in rows if row.kind == _NEW and row.room_id is not None}:
            limit = limit_of(engine.rooms, room_id)
            if self._depths.turns(engine, room_id, None, engine.now_ms()) < limit:
                self._ended.pop(room_id, None)
            elif room_id not in self._ended:
                self._ended[room_id] = None
                while len(self._ended) > MAX_PAIRS:
                    self._ended.popitem(last=False)
                with engine.store.transaction():
                    engine.events.tell(ENDED_EVENT, room_id, {"room_id": room_id, "turns": limit})
                    events = engine.events.write()
                engine.events.publish(events)

    def _is_over(self, engine: LoopParts, room_id: RoomId, author: EntityId | None) -> bool:
        turns = self._depths.turns(engine, room_id, author, engine.now_ms())
        return turns > limit_of(engine.rooms, room_id)

    def _check_turns(self, engine: LoopParts, author: EntityId, room_id: RoomId) -> None:
        """Refuse a message of an agent where agents have taken turns often enough since a person spoke.

        Raises:
            SubletError: ``LOOP_REFUSED``.
        """
        if self._is_over(engine, room_id, author):
            limit = limit_of(engine.rooms, room_id)
            raise SubletError(
                LocalCode.LOOP_REFUSED,
                f"agents have taken {limit} turns in this room since a person spoke, which is what it allows",
                "Nothing was sent. A person's message begins anew; an admin may raise timeline.max_agent_turns.",
            )

    def _hops(self, engine: LoopParts, author: EntityId, room_id: RoomId, ext: FieldsView) -> tuple[int, list[str]]:
        """Return how many messages of agents a new one has behind it, and who wrote them, the last first.

        It answers what it says that it answers; in a conversation of two agents what the other one has said last, too.
        """
        answered = _answered(ext)
        chain = list(islice(_chain(engine, room_id, answered), self._limits.max_hops + 1)) if answered else []
        hops = turns = 0
        before = author
        for speaker, count in chain:
            turns, before = turns + (speaker != before), speaker
            hops = max(hops, count + turns)
        members = engine.rooms.state(room_id).members()
        if len(members) == 2 and all(_kind(engine, member) is EntityKind.AGENT for member in members):
            said = list(_said(engine, author, room_id))
            if any(speaker != author for speaker, _ in said):
                claimed = max(count for _, count in said) + (said[0][0] != author)
                hops, chain = max(hops, claimed, _turns(said, author)), chain or said
        return hops, [speaker for speaker, _ in chain]

    def _count(self, engine: LoopParts, author: EntityId, room_id: RoomId) -> None:
        now, window = engine.now_ms(), int(WINDOW_SECONDS * 1_000)
        others = [
            member
            for member in engine.rooms.state(room_id).members()
            if member != author and _kind(engine, member) is EntityKind.AGENT
        ]
        for other in others:
            times = self._sent.setdefault((author, other), deque())
            while times and times[0] <= now - window:
                times.popleft()
            if len(times) >= self._limits.per_minute:
                left = (times[0] + window - now) / 1_000
                raise SubletError(
                    LocalCode.UNAVAILABLE,
                    f"{author} has sent {self._limits.per_minute} messages to {other} within a minute",
                    f"Nothing was sent. Wait {left:.0f} s, and say more in fewer messages.",
                )
        for other in others:
            self._sent[author, other].append(now)
            self._sent.move_to_end((author, other))
        while len(self._sent) > MAX_PAIRS:
            self._sent.popitem(last=False)


def _answered(ext: FieldsView) -> RefId | None:
    """Return the message that a new one says that it answers, or whose thread it is in."""
    for name in ("reply_to", "thread"):
        value = ext.get(name)
        ref = value.get("ref_id", value.get("root")) if isinstance(value, Mapping) else value
        if isinstance(ref, str) and is_ref_id(ref):
            return ref
    return None


def _chain(engine: LoopParts, room_id: RoomId, ref_id: RefId | None) -> Iterator[tuple[EntityId, int]]:
    """Yield the agents of a message and of what it answers, up to a person's, each with the hops that it claims."""
    seen: set[RefId] = set()
    while ref_id is not None and ref_id not in seen:
        seen.add(ref_id)
        ref = engine.reading.ref_in(room_id, ref_id)
        if ref is None or _kind(engine, ref["author"]) is not EntityKind.AGENT:
            return
        yield ref["author"], hops_of(ref)
        ext = {name.removeprefix("ext."): value for name, value in ref.items() if name.startswith("ext.")}
        ref_id = _answered({"reply_to": ext.get("reply_to")})


def _said(engine: LoopParts, author: EntityId, room_id: RoomId) -> Iterator[tuple[EntityId, int]]:
    """Yield who spoke lately in a conversation, the last first, with the hops of each message."""
    later = engine.now_ms()
    for document, node in islice(backwards(OperationContext(engine.operating, author), room_id, None), MAX_LOOKED_AT):
        ref = engine.reading.entry(document, node)
        sent = unix_ms(ref["created_at"])
        if sent is None or later - sent > FORGOTTEN_SECONDS * 1_000:
            return
        later = min(later, sent)
        yield ref["author"], hops_of(ref)


def _turns(said: list[tuple[EntityId, int]], author: EntityId) -> int:
    """Return how often speakers have taken turns, a message of ``author`` after them included."""
    speakers = [author, *(speaker for speaker, _ in said)]
    return sum(one != other for one, other in pairwise(speakers))
