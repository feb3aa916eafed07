"""Who may be told what: every question says who asks, apart from those for what proves itself and is everybody's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from nacl.signing import SigningKey

from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.ports.network import PeerQuery
from sublet.messaging.reading.avatars import avatar_of
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.sealing.room_seals import RoomSeals
from sublet.messaging.syncing.replays import SeenQuestions
from sublet.messaging.trust.clocks import PeerClocks
from sublet.protocol.ezagent.blob import parse_wanted
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import Channel, DocumentPlace, doc_id, parse_doc_id
from sublet.protocol.ezagent.question import NONCE_BYTES, Question, encode_question, open_answer, parse_question
from sublet.protocol.ezagent.room.state import Policy

_STATE: Final = f"/{Channel.STATE}"
_PUBLIC: Final = frozenset({"pubkey", "challenge"})
"""What proves itself, or is signed for somebody by itself."""


class DoorParts(Protocol):
    """The parts of the engine for knowing who may ask."""

    @property
    def clocks(self) -> PeerClocks: ...

    @property
    def here(self) -> RoomsHere: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def now_ms(self) -> Callable[[], int]: ...

    @property
    def reading(self) -> Reading: ...

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def seals(self) -> RoomSeals: ...


def place_of(key: str) -> DocumentPlace:
    """Return what a key that is asked for says.

    Raises:
        Refused: it is no key of the protocol.
    """
    return parse_doc_id(key.removesuffix(_STATE))


@dataclass(frozen=True, slots=True)
class RoomQuestion:
    """A question as it travels, and who opens the answers; None for what is everybody's, whose answers are open."""

    payload: bytes
    opener: SigningKey | None = None

    def opened(self, answer: bytes) -> bytes:
        """Return an answer as it was before it was sealed.

        Raises:
            Refused: it was not sealed for whoever asked.
        """
        return answer if self.opener is None else open_answer(self.opener, answer)


def ask(engine: DoorParts, key: str, body: bytes) -> RoomQuestion | None:
    """Return a question as it is asked under a key, by one of ours who may; None where none of ours may."""
    place = place_of(key)
    if place.kind in _PUBLIC:
        return RoomQuestion(body)
    asker = _who_asks(engine, place, body)
    if asker is None:
        return None
    local = engine.keyring.local[asker]
    question = encode_question(key, local.record, local.key, engine.now_ms(), os.urandom(NONCE_BYTES), body)
    return RoomQuestion(question, local.key)


def _who_asks(engine: DoorParts, place: DocumentPlace, body: bytes) -> EntityId | None:
    """Return who of ours asks; for a room that none is a member of, whoever comes first, since it may be open."""
    ours = list(engine.keyring.local)
    if place.kind == "blob":  # whoever is told it decides whether the room, or a profile of theirs, names it
        room = parse_wanted(body).room_id
        return next((one for one in ours if engine.here.is_member(one, room)), None)
    may = next((one for one in ours if may_ask(engine, one, place, body)), None)
    return may or (ours[0] if ours and place.kind == "config" else None)


def may_ask(engine: DoorParts, asker: EntityId, place: DocumentPlace, body: bytes) -> bool:
    """Tell whether an entity may be told what is at a place.

    Of a blob it may if it is a member of a room that names it, or that one of ours is in whose picture it is. The
    picture of anybody else is not told: their profile may name what is no picture of theirs.

    Raises:
        Refused: a question for a blob of another form.
    """
    room_id, entity = place.room_id, place.entity_id
    if place.kind == "blob" and place.hash is not None:
        room = parse_wanted(body).room_id
        named = doc_id("blob_ref", room_id=room, hash=place.hash)
        if not engine.here.is_member(asker, room):
            return False
        return bool(engine.reading.map_document(named)) or _is_our_picture(engine, room, place.hash)
    if place.kind in ("inbox", "draft"):
        return asker == entity
    if room_id is None:
        return entity is not None and (asker == entity or _share_a_room(engine, asker, entity))
    if engine.here.is_member(asker, room_id):
        return True
    if place.kind != "config" or room_id not in engine.here.ids:
        return False
    return engine.rooms.state(room_id).policy in (Policy.OPEN, Policy.KNOCK)


def hides_length(engine: DoorParts, key: str) -> bool:
    """Tell whether even the length of an answer is nobody's business: it is of a sealed room, or of rooms at all."""
    place = place_of(key)
    return place.kind == "inbox" or (place.room_id is not None and engine.seals.is_sealed(place.room_id))


def _share_a_room(engine: DoorParts, one: EntityId, other: EntityId) -> bool:
    return any(engine.here.is_member(one, room) and engine.here.is_member(other, room) for room in engine.here.ids)


def _is_our_picture(engine: DoorParts, room: RoomId, digest: str) -> bool:
    return any(
        engine.here.is_member(entity, room) and avatar_of(engine.reading, entity) == digest
        for entity in engine.keyring.local
    )


class Doorkeeper:
    """Opens questions of peers; used on the engine's thread only."""

    def __init__(self) -> None:
        self._seen = SeenQuestions()
        self._seen_elsewhen = SeenQuestions()
        """Of daemons whose clocks differ from ours, by these clocks."""

    def admit(self, engine: DoorParts, query: PeerQuery) -> Question | None:
        """Return a question whose asker may be answered; None for what is everybody's.

        Raises:
            Refused: it does not prove its asker, was asked before, or the asker may not be told.
        """
        place = place_of(query.key)
        if place.kind in _PUBLIC:
            return None
        question = parse_question(query.key, query.payload, engine.now_ms())
        known = engine.keyring.record(question.asker)
        if known is not None and question.version < known.version:
            raise Refused(Refusal.STALE, "whoever asks shows a record that is out of date")
        speaking = engine.keyring.speaking(question.asker)
        if speaking is not None and engine.keyring.has_several(question.asker) and question.key not in speaking:
            raise Refused(Refusal.STALE, "whoever asks is a device that speaks for its entity no more, or not yet")
        if not may_ask(engine, question.asker, place, question.body):
            raise Refused(Refusal.FOREIGN_KEY, "whoever asks may not be told")
        peer, now_ms = engine.keyring.home(question.asker), engine.now_ms()
        if not question.of_now:
            at = engine.clocks.by_its_own(question.asker, place.room_id, question.signed_ms)
            if at is None or not self._seen_elsewhen.is_first(peer, question.nonce, question.signed_ms, at):
                raise Refused(Refusal.STALE, f"a question {(now_ms - question.signed_ms) // 1_000} s from now")
            return question
        if not self._seen.is_first(peer, question.nonce, question.signed_ms, now_ms):
            raise Refused(Refusal.STALE, "a question that was answered before")
        engine.clocks.asked(question.asker, place.room_id, question.signed_ms)
        return question
