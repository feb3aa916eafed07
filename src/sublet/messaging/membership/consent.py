"""What is kept of invitations until somebody here answers: a bounded little of each inviter; on the engine's thread.

Rules: nothing of the room itself is kept, heard, served or asked for, but its config as it was offered, where that is
short. A new invitation takes the place of none: whoever has as many waiting as one may have invites to no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, Protocol

from sublet.messaging.events.events import Events
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.ports.invitation_store import Answer, Invitation
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.standing import INVITED_EVENT
from sublet.protocol.ezagent.bundle import Bundle
from sublet.protocol.ezagent.ids import EntityId, RoomId

MAX_OF_INVITER: Final = 32
"""Invitations of one entity that wait."""
MAX_OF_DAEMON: Final = 64
"""Invitations of the entities of one daemon that wait."""
MAX_BYTES_OF_DAEMON: Final = 1 << 20
MAX_WAITING: Final = 1_024
"""Invitations of all daemons that wait."""
MAX_CONFIG_BYTES_KEPT: Final = 64 << 10
"""Of one that waits; a longer config is asked for once it is accepted."""
MAX_ANSWERED_OF_DAEMON: Final = 256
"""Invitations that were answered and are remembered, of one daemon; of more the oldest are forgotten."""
MAX_MEMBERS_SHOWN: Final = 32
ANSWERED_MS: Final = 30 * 86_400_000
"""How long an answer is remembered: so long no new invitation into a room that was declined is shown."""


class Consent(Enum):
    """What becomes of an invitation without a person."""

    ACCEPT = auto()
    """It is taken up by itself."""
    ASK = auto()
    """It waits for an answer."""
    REFUSE = auto()
    """Nothing of it is kept."""


class ConsentRules(Protocol):
    """Decides what becomes of invitations; on the event loop."""

    def foresee(self, home: str) -> Consent:
        """Return the best that can become of an invitation by an entity of a daemon, whoever of ours it is for."""

    async def decide(self, home: str, whom: Collection[EntityId]) -> Consent:
        """Return what becomes of an invitation, and write down where it is taken up by itself.

        Args:
            home: node id of the daemon of who invites.
            whom: those of ours who are invited.
        """


class TellsNo(Protocol):
    """Tells those who invite that ours have declined."""

    async def refuse(self, declined: Invitation, config: Bundle) -> None:
        """Tell of a no soon, made from a room's config as it is offered; again only after a while."""

    async def tell_again(self) -> None:
        """Tell of what was declined while nobody could be reached."""


class AskAlways:
    """Has every invitation wait."""

    def foresee(self, home: str) -> Consent:
        return Consent.ASK

    async def decide(self, home: str, whom: Collection[EntityId]) -> Consent:
        return Consent.ASK


class ConsentParts(Protocol):
    """The parts of the engine for keeping invitations."""

    @property
    def answered(self) -> list[Callable[[Invitation], None]]: ...

    @property
    def events(self) -> Events: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def now_ms(self) -> Callable[[], int]: ...

    @property
    def store(self) -> Store: ...


@dataclass(frozen=True, slots=True)
class OfferRead:
    """What a room's config says to us, once its signatures are proven.

    Args:
        by: who has brought ours in, and may; None for nobody.
        home: node id of the daemon of that one.
        whom: those of ours who are in.
        name: of the room.
        creator: who has opened it.
        members: all of them.
        taken_out: whether ours were members and are none any more.
    """

    by: EntityId | None
    home: str
    whom: tuple[EntityId, ...]
    name: str
    creator: EntityId
    members: tuple[EntityId, ...]
    taken_out: bool


def known(engine: ConsentParts) -> list[RoomId]:
    """Return the rooms of which nobody needs to tell: those that wait, and those that were declined for good."""
    return [
        one.room_id
        for one in engine.store.invitations.kept()
        if one.answer is Answer.PENDING or (one.answer is Answer.DECLINED and one.is_told)
    ]


def find(engine: ConsentParts, room_id: RoomId) -> Invitation | None:
    """Return what is kept of an invitation; nothing of an answer that is too old."""
    found = engine.store.invitations.get(room_id)
    if found is not None and found.answer is not Answer.PENDING and engine.now_ms() - found.at_ms > ANSWERED_MS:
        engine.store.invitations.drop(room_id)
        return None
    return found


def is_full(engine: ConsentParts, by: EntityId, home: str) -> bool:
    """Tell whether as many invitations of an entity wait as may, or of its daemon, or of all of them."""
    waiting = [one for one in engine.store.invitations.kept() if one.answer is Answer.PENDING]
    of_daemon, of_inviter = sum(one.home == home for one in waiting), sum(one.by == by for one in waiting)
    return len(waiting) >= MAX_WAITING or of_daemon >= MAX_OF_DAEMON or of_inviter >= MAX_OF_INVITER


def keep(
    engine: ConsentParts, room_id: RoomId, read: OfferRead, config: bytes, before: Invitation | None = None
) -> bool:
    """Keep an invitation until it is answered; return whether there was room for it.

    Args:
        engine: the engine.
        room_id: the room.
        read: what its config says; somebody has brought ours in.
        config: the config, as it is kept.
        before: what was known of it; if that is another by now, it was answered meanwhile, and stays so.
    """
    assert read.by is not None, "nobody has invited"
    store = engine.store.invitations
    if store.get(room_id) != before:
        return True
    others = [one for one in store.kept() if one.answer is Answer.PENDING and one.room_id != room_id]
    homes, inviters = Counter(one.home for one in others), Counter(one.by for one in others)
    if len(others) >= MAX_WAITING or homes[read.home] >= MAX_OF_DAEMON or inviters[read.by] >= MAX_OF_INVITER:
        return False
    shown = tuple(sorted(read.members, key=lambda one: (one != read.by, one)))[:MAX_MEMBERS_SHOWN]
    waits = before is not None and before.answer is Answer.PENDING
    at_ms = before.at_ms if before is not None and waits else engine.now_ms()
    bare = Invitation(
        room_id, read.home, read.by, read.whom, read.name, shown, len(read.members), Answer.PENDING, at_ms
    )
    left = MAX_BYTES_OF_DAEMON - sum(one.size for one in others if one.home == read.home) - bare.size
    if left < 0:
        return False
    fits = len(config) <= min(left, MAX_CONFIG_BYTES_KEPT)
    with engine.store.transaction():
        store.put(replace(bare, kept=config) if fits else bare)
        for entity in read.whom if not waits else ():
            engine.events.tell(INVITED_EVENT, room_id, {"entity": entity, "by": read.by})
        events = engine.events.write()
    engine.events.publish(events)
    return True


def expect(engine: ConsentParts, room_id: RoomId, by: EntityId, home: str) -> bool:
    """Note that a room was agreed to before it was offered, as that of a delegation; return whether it waited already.

    Args:
        engine: the engine.
        room_id: the room.
        by: who opens it, and brings ours in.
        home: node id of the daemon of that one.
    """
    waits = find(engine, room_id) is not None
    agreed = Invitation(room_id, home, by, (), "", (), 0, Answer.ACCEPTED, engine.now_ms())
    answer(engine, agreed, Answer.ACCEPTED, b"")
    return waits


def is_agreed(found: Invitation, read: OfferRead) -> bool:
    """Tell whether a room that is offered is one that was accepted: it comes from where the invitation did.

    One that was agreed to before it was offered is that of who opens it, and nobody else's.
    """
    if found.answer is not Answer.ACCEPTED or found.home != read.home:
        return False
    return bool(found.whom) or (found.by == read.by == read.creator)


def keep_no(engine: ConsentParts, room_id: RoomId, no: bytes) -> None:
    """Keep a no that is to be told, unless ours have changed their mind."""
    found = engine.store.invitations.get(room_id)
    if found is not None and found.answer is Answer.DECLINED:
        engine.store.invitations.put(replace(found, kept=no, is_told=False))


def told(engine: ConsentParts, room_id: RoomId, no: bytes) -> None:
    """Note that somebody has taken a no, unless ours have changed their mind."""
    found = engine.store.invitations.get(room_id)
    if found is not None and found.answer is Answer.DECLINED and found.kept == no:
        engine.store.invitations.put(replace(found, is_told=True))


def answer(engine: ConsentParts, invitation: Invitation, given: Answer, kept: bytes) -> None:
    """Keep what was said to an invitation.

    Args:
        engine: the engine.
        invitation: as it was.
        given: what is said.
        kept: the no that is to be told, or what was kept before.
    """
    store = engine.store.invitations
    at_ms = invitation.at_ms if invitation.answer is given else engine.now_ms()
    said = replace(invitation, answer=given, at_ms=at_ms, kept=kept, is_told=False)
    store.put(said)
    for listener in engine.answered:
        listener(said)
    same = [one for one in store.kept() if one.home == invitation.home and one.answer is not Answer.PENDING]
    for old in same[: max(0, len(same) - MAX_ANSWERED_OF_DAEMON)]:
        store.drop(old.room_id)
