"""Whom we share rooms with, and rooms that others bring us into: nothing is left of one that is not taken up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from sublet.messaging.intake.intake import Intake
from sublet.messaging.membership import consent
from sublet.messaging.membership.consent import ConsentParts, OfferRead
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.writing.later import Later
from sublet.protocol.ezagent.bundle import Bundle, RecordKind
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.identity import parse_record
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.inbox import MAX_KNOWN_ROOMS
from sublet.protocol.ezagent.keys import parse_doc_id

MAX_ROOMS: Final = 4_096
MAX_ROOMS_OF_INVITER: Final = 512
"""Rooms into which the entities of one daemon have brought ours without a person's yes."""


class InvitationParts(ConsentParts, Protocol):
    """The parts of the engine for being brought into rooms."""

    @property
    def here(self) -> RoomsHere: ...

    @property
    def intake(self) -> Intake: ...

    @property
    def later(self) -> Later: ...

    @property
    def rooms(self) -> RoomStates: ...


@dataclass(frozen=True, slots=True)
class Offered:
    """A room's config as somebody has sent it, with who says that they have signed it; nothing is verified.

    ``homes`` has the daemons at which those are at home whose records came along, and prove that.
    """

    config: Bundle
    signers: frozenset[EntityId]
    homes: Mapping[EntityId, str] = field(default_factory=dict)


def rooms_in(bundle: Bundle, most: int = MAX_ROOMS) -> dict[RoomId, Offered]:
    """Return the rooms whose configs a bundle holds, each by itself, so that many cost as much as one by one.

    Args:
        bundle: the configs, with the records of their signers.
        most: how many rooms are returned, those that come first.
    """
    configs: dict[RoomId, list[tuple[RecordKind, bytes]]] = {}
    signers: dict[RoomId, set[EntityId]] = {}
    for raw in bundle.of(RecordKind.ENVELOPE):
        with suppress(Refused):
            envelope = unpack(raw)
            place = parse_doc_id(envelope.doc_id)
            if (
                place.kind == "config"
                and place.room_id is not None
                and (place.room_id in configs or len(configs) < most)
            ):
                configs.setdefault(place.room_id, []).append((RecordKind.ENVELOPE, raw))
                signers.setdefault(place.room_id, set()).add(envelope.signer)
    # Each record costs signatures to prove, so there are no more of them than signers.
    who: dict[EntityId, tuple[RecordKind, bytes]] = {}
    homes: dict[EntityId, str] = {}
    for raw in list(dict.fromkeys(bundle.of(RecordKind.IDENTITY)))[: len(set().union(*signers.values()))]:
        with suppress(Refused):
            record = parse_record(raw)
            who[record.entity_id] = RecordKind.IDENTITY, raw
            homes[record.entity_id] = record.home
    return {
        room: Offered(
            Bundle((*(who[one] for one in sorted(signers[room]) if one in who), *config)),
            frozenset(signers[room]),
            {one: homes[one] for one in signers[room] if one in homes},
        )
        for room, config in configs.items()
    }


def rooms_known(engine: InvitationParts, entity: EntityId) -> set[RoomId]:
    """Return the rooms of which one of ours need not be told.

    Those are the ones that it is a member of, invitations that wait or were declined, and what is forgotten.
    """
    found = {room_id for room_id in engine.here.ids if engine.here.is_member(entity, room_id)}
    found.update(consent.known(engine))
    left = MAX_KNOWN_ROOMS - len(found)  # of what is forgotten, peers keep the newest the longest
    return found | set(sorted(engine.store.removal.forgotten(), reverse=True)[: max(0, left)])


def is_new(engine: InvitationParts, room_id: RoomId) -> bool:
    """Tell whether a room may be taken up that is not here."""
    if room_id in engine.here.ids or engine.store.removal.is_forgotten(room_id):
        return False
    return len(engine.here.ids) < MAX_ROOMS


def follow(
    engine: InvitationParts, room_id: RoomId, bundle: Bundle, by: EntityId | None, *, is_asked: bool = False
) -> bool:
    """Take up a room, and tell whether it was new here.

    Args:
        engine: the engine.
        room_id: the room.
        bundle: its config.
        by: who has brought ours into it; None for nobody who may.
        is_asked: whether a person here has accepted, which no number of rooms stands against but ``MAX_ROOMS``.
    """
    if by is None or not is_new(engine, room_id):
        return False
    if not is_asked and _brought_by(engine, engine.keyring.home(by)) >= MAX_ROOMS_OF_INVITER:
        return False
    engine.here.ids.add(room_id)
    try:
        engine.intake.take_bundle(None, bundle)
    except BaseException:
        engine.here.ids.discard(room_id)  # it could not be kept: the next offer is as new as this one
        raise

    def taken_up() -> None:
        engine.store.invitations.drop(room_id)
        for listener in engine.here.agreed:
            listener(room_id)

    engine.later.after_commit(taken_up)
    return True


def homes_of(engine: InvitationParts, offered: Offered) -> dict[EntityId, str]:
    """Return at which daemons those are at home who say that they have signed a config."""
    return {one: offered.homes.get(one) or engine.keyring.home(one) for one in offered.signers}


def heard(engine: InvitationParts, room_id: RoomId, bundle: Bundle) -> None:
    """Take a part of the config of a room that is here."""
    if room_id in engine.here.ids:
        engine.intake.take_bundle(None, bundle)


def read_offer(
    make_trial: Callable[[], InvitationParts], room_id: RoomId, bundle: Bundle, may_invite: Collection[EntityId]
) -> OfferRead:
    """Return what a room's config says to us: who has brought one of ours in, and into what; takes a while.

    Args:
        make_trial: makes an engine in memory, where a config is read before anything of it is kept.
        room_id: the room.
        bundle: its config, as somebody has sent it.
        may_invite: whose grant is good enough: not who has signed anything in it, but who has signed the grant.
    """
    trial = make_trial()
    try:
        trial.here.ids.add(room_id)
        trial.intake.take_bundle(None, bundle)
        state = trial.rooms.state(room_id)
        members = tuple(state.members())
        whom = tuple(entity for entity in trial.keyring.local if entity in members)
        by = next((by for by in inviters(trial, room_id) if by in may_invite), None)
        removed = any(entity in trial.keyring.local and one.removals for entity, one in state.entities.items())
        home = trial.keyring.home(by) if by is not None else ""
        return OfferRead(by, home, whom, state.name, state.creator or "", members, removed and not whom)
    finally:
        trial.store.close()


def inviters(engine: InvitationParts, room_id: RoomId) -> list[EntityId]:
    """Return who has made our entities members of a room."""
    entities = engine.rooms.state(room_id).entities
    grants = (entities[entity].current() for entity in engine.keyring.local if entity in entities)
    return [grant.by for grant in grants if grant is not None]


def _brought_by(engine: InvitationParts, home: str) -> int:
    home_of = engine.keyring.home
    if home in {home_of(entity) for entity in engine.keyring.local}:
        return 0
    return sum(any(home_of(by) == home for by in inviters(engine, room)) for room in engine.here.ids)
