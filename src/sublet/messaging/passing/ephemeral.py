"""What passes: signed like everything else, held in memory alone, and forgotten with its writer (ezagent 5, EXT-09).

A token of the network tells that somebody's daemon is there, but anybody may declare one. So an entity counts as
present when its token is there and something that it has signed just now has come as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sublet.messaging.events.events import Events
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.passing.kept_passing import KeptPassing, Key
from sublet.messaging.ports.outbox import Outbox, Outgoing
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.schema.changes import Happened, RunsHooks
from sublet.messaging.schema.datatypes import Change
from sublet.messaging.schema.schema import Schema
from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue, narrow
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.envelope import Envelope, seal
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id, parse_doc_id

MAX_VALUE_BYTES: Final = 2_048
MAX_AGE_MS: Final = 120_000
"""How far a signer's clock may be from ours; what is older is a replay."""
MIN_PAUSE_MS: Final = 50
"""What comes sooner after the one before is dropped."""
SWEEP_MS: Final = 10_000
"""How often at most what was said without a token is given up for others."""
PRESENCE: Final = "presence"
AWARENESS: Final = "awareness"


@dataclass(frozen=True, slots=True)
class Passing:
    """What an entity has said last, and when: by its own clock, and by ours.

    It is kept as it came: parsed JSON may take fifty times the memory of its text.
    """

    raw: bytes
    signed_ms: int
    came_ms: int

    @property
    def value(self) -> dict[str, JsonValue]:
        """Return what was said, parsed."""
        return _value(self.raw)


class Ephemeral:
    """Who is present, and what they are about; used on the engine's thread.

    Args:
        here: who is a member.
        keyring: who is one of ours.
        schema: how it is published.
        hooks: who are told.
        events: what is told of it.
        outbox: what is published.
        now_ms: the clock, Unix milliseconds.
    """

    def __init__(
        self,
        here: RoomsHere,
        keyring: Keyring,
        schema: Schema,
        hooks: RunsHooks,
        events: Events,
        outbox: Outbox,
        now_ms: Callable[[], int],
    ) -> None:
        self._here = here
        self._keyring = keyring
        self._schema = schema
        self._hooks = hooks
        self._events = events
        self._outbox = outbox
        self._now_ms = now_ms
        self._tokens = KeptPassing[None](keyring.home)
        self._said = KeptPassing[Passing](keyring.home)
        self._swept_ms = 0

    def take(self, envelope: Envelope) -> None:
        """Take what an entity says, whose signature was verified.

        Raises:
            Refused: another's key, no member, stale, replayed, too soon after the last, or of another shape.
        """
        place = parse_doc_id(envelope.doc_id)
        room_id, entity = place.room_id, place.entity_id
        if room_id is None or entity is None or place.ext_id != AWARENESS or entity != envelope.signer:
            raise Refused(Refusal.FOREIGN_KEY, "what passes is said under one's own key")
        if not self._here.is_member(entity, room_id):
            raise Refused(Refusal.UNKNOWN_DOCUMENT, "nobody of this room")
        now, before = self._now_ms(), self._said.get((room_id, entity))
        if abs(now - envelope.timestamp_ms) > MAX_AGE_MS or (
            before is not None and envelope.timestamp_ms <= before.signed_ms
        ):
            raise Refused(Refusal.STALE, "this was said before")
        if before is not None and now - before.came_ms < MIN_PAUSE_MS:
            raise Refused(Refusal.TOO_MANY, "too much is said")
        _value(envelope.payload)
        self._say(room_id, entity, Passing(envelope.payload, envelope.timestamp_ms, now), local=False)

    def say(self, entity: EntityId, room_id: RoomId, value: dict[str, JsonValue]) -> None:
        """Say something as one of our own; published after the engine's next ``commit``.

        Raises:
            SubletError: ``INVALID_ARGUMENT``: it is too long.
        """
        before = self._said.get((room_id, entity))
        at = max(self._now_ms(), before.signed_ms + 1 if before is not None else 0)
        payload = _payload(value)
        self._say(room_id, entity, Passing(payload, at, self._now_ms()), local=True)
        self._publish(room_id, entity, payload, at)

    def say_again(self, room_id: RoomId) -> None:
        """Publish once more what our own have said last in a room; nothing is told of it here."""
        for entity in self._keyring.local:
            said = self._said.get((room_id, entity))
            if said is None or not self._here.is_member(entity, room_id):
                continue
            at = max(self._now_ms(), said.signed_ms + 1)
            self._said.put((room_id, entity), Passing(said.raw, at, said.came_ms), len(said.raw))
            self._publish(room_id, entity, said.raw, at)

    def answer(self, room_id: RoomId, entity: EntityId) -> bytes | None:
        """Return what one of our own is about, signed for whoever asks now; None where it is none of ours there."""
        if entity not in self._keyring.local or not self._here.is_member(entity, room_id):
            return None
        said = self._said.get((room_id, entity))
        payload = said.raw if said is not None else _payload({"entity_id": entity})
        return self._sealed(entity, room_id, payload, max(self._now_ms(), said.signed_ms if said else 0))

    def token(self, room_id: RoomId, entity: EntityId, *, there: bool) -> None:
        """Take that an entity's token has come or gone; by itself it tells only the latter."""
        key = (room_id, entity)
        if there and self._tokens.has_room(key, 0):
            was = self.is_present(room_id, entity)
            self._tokens.put(key, None, 0)
            if not was and key in self._said:
                self._happened(room_id, entity, Change.INSERT, PRESENCE, local=False)
        elif not there:
            was = self.is_present(room_id, entity)
            self._tokens.drop(key)
            self._said.drop(key)
            if was:
                self._happened(room_id, entity, Change.DELETE, PRESENCE, local=False)

    def settle(self, room_id: RoomId) -> None:
        """Give back what those of a room take who are no members any more, or all, where the room is not here."""
        for kept in (self._tokens, self._said):
            for key in [key for key in kept.of_room(room_id) if not self._here.is_member(key[1], room_id)]:
                kept.drop(key)

    def has_token(self, room_id: RoomId, entity: EntityId) -> bool:
        """Tell whether an entity's token is there, whoever has declared it."""
        return (room_id, entity) in self._tokens

    def is_present(self, room_id: RoomId, entity: EntityId) -> bool:
        """Tell whether an entity is a member and there; one of our own always is."""
        if not self._here.is_member(entity, room_id):
            return False
        key = (room_id, entity)
        return entity in self._keyring.local or (key in self._tokens and key in self._said)

    def said(self, room_id: RoomId, entity: EntityId) -> Passing | None:
        """Return what an entity has said last."""
        return self._said.get((room_id, entity))

    def all(self) -> Iterator[tuple[RoomId, EntityId, Passing]]:
        """Yield what everybody has said last."""
        for (room_id, entity), said in self._said.all():
            yield room_id, entity, said

    def replace(self, room_id: RoomId, entity: EntityId, value: dict[str, JsonValue]) -> None:
        """Take something back that an entity has said, since its time is over."""
        said = self._said.get((room_id, entity))
        if said is not None:
            self._say(room_id, entity, Passing(_payload(value), said.signed_ms, said.came_ms), local=False)

    def _publish(self, room_id: RoomId, entity: EntityId, payload: bytes, at_ms: int) -> None:
        key = doc_id("ephemeral", room_id=room_id, ext_id=AWARENESS, entity_id=entity)
        datatype = self._schema.datatype_at("ephemeral", AWARENESS)
        assert datatype is not None, "only who declares it says it"
        self._outbox.put(Outgoing(key, self._sealed(entity, room_id, payload, at_ms), b"", datatype.qos))

    def _say(self, room_id: RoomId, entity: EntityId, passing: Passing, *, local: bool) -> None:
        key = (room_id, entity)
        if not local and not self._has_room(key, len(passing.raw)):
            raise Refused(Refusal.TOO_MANY, "too much is said of those who are present")
        was, before = self.is_present(room_id, entity), self._said.get(key)
        self._said.put(key, passing, len(passing.raw))
        if not was and self.is_present(room_id, entity):
            self._happened(room_id, entity, Change.INSERT, PRESENCE, local=local)
        self._happened(room_id, entity, Change.UPDATE, AWARENESS, local=local, before=before)

    def _has_room(self, key: Key, size: int) -> bool:
        """Tell whether there is room for what somebody says, once old words of those without a token are gone."""
        now = self._now_ms()
        if not self._said.has_room(key, size) and abs(now - self._swept_ms) >= SWEEP_MS:
            self._swept_ms = now
            for other, said in self._said.all():
                if other not in self._tokens and now - said.came_ms > MAX_AGE_MS:
                    self._said.drop(other)
        return self._said.has_room(key, size)

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
        datatype = self._schema.datatype_at("ephemeral", kind)
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
        self._hooks.after_write(change)
        self._events.pass_on()

    def _sealed(self, entity: EntityId, room_id: RoomId, payload: bytes, at_ms: int) -> bytes:
        key = doc_id("ephemeral", room_id=room_id, ext_id=AWARENESS, entity_id=entity)
        return seal(self._keyring.key(entity), entity, key, at_ms, payload).raw


def _payload(value: dict[str, JsonValue]) -> bytes:
    payload = json.dumps(value, separators=(",", ":")).encode()
    if len(payload) > MAX_VALUE_BYTES:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "too much to say in passing", "Send a message.")
    return payload


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
