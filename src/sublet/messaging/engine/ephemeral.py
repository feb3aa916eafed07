"""What passes: signed like everything else, held in memory alone, and forgotten with its writer (ezagent 5, EXT-09).

A token of the network tells that somebody's daemon is there, but anybody may declare one. So an entity counts as
present when its token is there and something that it has signed just now has come as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sublet.messaging.engine.contexts import Happened
from sublet.messaging.engine.declaration import Change
from sublet.messaging.engine.writing import Outgoing
from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue, narrow
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.envelope import Envelope, seal
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import EntityId, RoomId, entity_domain
from sublet.protocol.ezagent.keys import doc_id, parse_doc_id

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine

MAX_VALUE_BYTES: Final = 2_048
MAX_AGE_MS: Final = 120_000
"""How far a signer's clock may be from ours; what is older is a replay."""
MIN_PAUSE_MS: Final = 50
"""What comes sooner after the one before is dropped."""
MAX_PRESENT: Final = 8_192
MAX_PRESENT_OF_DAEMON: Final = 1_024
"""Of the entities of one daemon, in all rooms."""
PRESENCE: Final = "presence"
AWARENESS: Final = "awareness"


@dataclass(frozen=True, slots=True)
class Passing:
    """What an entity has said last, and when: by its own clock, and by ours."""

    value: dict[str, JsonValue]
    signed_ms: int
    came_ms: int


Key = tuple[RoomId, EntityId]


class Ephemeral:
    """Who is present, and what they are about; used on the engine's thread.

    Args:
        engine: what it is a part of.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tokens: dict[Key, None] = {}
        self._said: dict[Key, Passing] = {}

    def take(self, envelope: Envelope) -> None:
        """Take what an entity says, whose signature was verified.

        Raises:
            Refused: another's key, no member, stale, replayed, too soon after the last, or of another shape.
        """
        place = parse_doc_id(envelope.doc_id)
        room_id, entity = place.room_id, place.entity_id
        if room_id is None or entity is None or place.ext_id != AWARENESS or entity != envelope.signer:
            raise Refused(Refusal.FOREIGN_KEY, "what passes is said under one's own key")
        if not self._engine.is_member(entity, room_id):
            raise Refused(Refusal.UNKNOWN_DOCUMENT, "nobody of this room")
        now, before = self._engine.now_ms(), self._said.get((room_id, entity))
        if abs(now - envelope.timestamp_ms) > MAX_AGE_MS or (
            before is not None and envelope.timestamp_ms <= before.signed_ms
        ):
            raise Refused(Refusal.STALE, "this was said before")
        if before is not None and now - before.came_ms < MIN_PAUSE_MS:
            raise Refused(Refusal.TOO_MANY, "too much is said")
        self._say(room_id, entity, Passing(_value(envelope.payload), envelope.timestamp_ms, now), local=False)

    def say(self, entity: EntityId, room_id: RoomId, value: dict[str, JsonValue]) -> None:
        """Say something as one of our own; published after the engine's next ``commit``.

        Raises:
            SubletError: ``INVALID_ARGUMENT``: it is too long.
        """
        before = self._said.get((room_id, entity))
        at = max(self._engine.now_ms(), before.signed_ms + 1 if before is not None else 0)
        raw = self._sealed(entity, room_id, value, at)
        key = doc_id("ephemeral", room_id=room_id, ext_id=AWARENESS, entity_id=entity)
        datatype = self._engine.registry.datatype_at("ephemeral", AWARENESS)
        assert datatype is not None, "only who declares it says it"
        self._say(room_id, entity, Passing(value, at, self._engine.now_ms()), local=True)
        self._engine.writing.outgoing.append(Outgoing(key, raw, b"", datatype.qos))

    def answer(self, room_id: RoomId, entity: EntityId) -> bytes | None:
        """Return what one of our own is about, signed for whoever asks now; None where it is none of ours there."""
        if entity not in self._engine.keyring.local or not self._engine.is_member(entity, room_id):
            return None
        said = self._said.get((room_id, entity))
        value: dict[str, JsonValue] = said.value if said is not None else {"entity_id": entity}
        return self._sealed(entity, room_id, value, max(self._engine.now_ms(), said.signed_ms if said else 0))

    def token(self, room_id: RoomId, entity: EntityId, *, there: bool) -> None:
        """Take that an entity's token has come or gone; by itself it tells only the latter."""
        key = (room_id, entity)
        if there and (key in self._tokens or self._has_room(self._tokens, entity)):
            was = self.is_present(room_id, entity)
            self._tokens[key] = None
            if not was and key in self._said:
                self._happened(room_id, entity, Change.INSERT, PRESENCE, local=False)
        elif not there:
            was = self.is_present(room_id, entity)
            self._tokens.pop(key, None)
            self._said.pop(key, None)
            if was:
                self._happened(room_id, entity, Change.DELETE, PRESENCE, local=False)

    def has_token(self, room_id: RoomId, entity: EntityId) -> bool:
        """Tell whether an entity's token is there, whoever has declared it."""
        return (room_id, entity) in self._tokens

    def is_present(self, room_id: RoomId, entity: EntityId) -> bool:
        """Tell whether an entity is a member and there; one of our own always is."""
        if not self._engine.is_member(entity, room_id):
            return False
        key = (room_id, entity)
        return entity in self._engine.keyring.local or (key in self._tokens and key in self._said)

    def said(self, room_id: RoomId, entity: EntityId) -> Passing | None:
        """Return what an entity has said last."""
        return self._said.get((room_id, entity))

    def all(self) -> Iterator[tuple[RoomId, EntityId, Passing]]:
        """Yield what everybody has said last."""
        for (room_id, entity), said in list(self._said.items()):
            yield room_id, entity, said

    def replace(self, room_id: RoomId, entity: EntityId, value: dict[str, JsonValue]) -> None:
        """Take something back that an entity has said, since its time is over."""
        said = self._said.get((room_id, entity))
        if said is not None:
            self._say(room_id, entity, Passing(value, said.signed_ms, said.came_ms), local=False)

    def _say(self, room_id: RoomId, entity: EntityId, passing: Passing, *, local: bool) -> None:
        key = (room_id, entity)
        if key not in self._said and not local and not self._has_room(self._said, entity):
            raise Refused(Refusal.TOO_MANY, "too many are present")
        was, before = self.is_present(room_id, entity), self._said.get(key)
        self._said[key] = passing
        if not was and self.is_present(room_id, entity):
            self._happened(room_id, entity, Change.INSERT, PRESENCE, local=local)
        self._happened(room_id, entity, Change.UPDATE, AWARENESS, local=local, before=before)

    def _has_room(self, kept: Mapping[Key, object], entity: EntityId) -> bool:
        """Tell whether one more of an entity's daemon is kept, which takes nobody else's place."""
        if len(kept) >= MAX_PRESENT:
            return False
        domain = entity_domain(entity)
        return len(kept) < MAX_PRESENT_OF_DAEMON or (
            sum(entity_domain(other) == domain for _, other in kept) < MAX_PRESENT_OF_DAEMON
        )

    def _happened(
        self,
        room_id: RoomId,
        entity: EntityId,
        event: Change,
        kind: str,
        *,
        local: bool,
        before: Passing | None = None,
    ) -> None:
        datatype = self._engine.registry.datatype_at("ephemeral", kind)
        if datatype is None:
            return
        said = self._said.get((room_id, entity))
        change = Happened(
            datatype.id,
            event,
            doc_id("ephemeral", room_id=room_id, ext_id=kind, entity_id=entity),
            room_id,
            entity,
            (0, 0),
            entity,
            fields=said.value if said is not None else {},
            value=before.value if before is not None else None,
            local=local,
            passing=True,
        )
        self._engine.hooks.after_write(self._engine, change)
        self._engine.events.pass_on()

    def _sealed(self, entity: EntityId, room_id: RoomId, value: dict[str, JsonValue], at_ms: int) -> bytes:
        payload = json.dumps(value, separators=(",", ":")).encode()
        if len(payload) > MAX_VALUE_BYTES:
            raise SubletError(LocalCode.INVALID_ARGUMENT, "too much to say in passing", "Send a message.")
        key = doc_id("ephemeral", room_id=room_id, ext_id=AWARENESS, entity_id=entity)
        return seal(self._engine.key(entity), entity, key, at_ms, payload).raw


def _value(payload: bytes) -> dict[str, JsonValue]:
    if len(payload) > MAX_VALUE_BYTES:
        raise Refused(Refusal.OVERSIZED, "too much is said in passing")
    try:
        value = narrow(parse_json(payload))
    except (ValueError, RecursionError):
        raise malformed("what is said in passing is no JSON") from None
    if not isinstance(value, dict):
        raise malformed("what is said in passing is no object")
    return value
