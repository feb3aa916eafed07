"""Probes of invitations: what reading them costs, and what is kept of those that nobody has answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attacks.kit.room_floods import statements
from attacks.probe import CostProbe, KeptProbe
from sublet.messaging.membership import consent
from sublet.messaging.membership.consent import MAX_OF_DAEMON, OfferRead
from sublet.messaging.membership.declining import no_to
from sublet.messaging.membership.offer_limits import MAX_LEFT_OUT_OF_DAEMON, OfferLimits
from sublet.messaging.ports.invitation_store import Answer
from sublet.messaging.syncing.answers import withdrawn
from sublet.protocol.ezagent.bundle import Bundle, decode_bundle
from sublet.protocol.ezagent.ids import room_id
from support.rooms import NOW_MS, Peer, peers


def _offered(number: int) -> tuple[Peer, str, Bundle]:
    """Return somebody who is invited by a config of so many statements that nobody lets their writer make."""
    from sublet.messaging.syncing.answers import offer

    alice, bob = peers("alice", "bob")
    room = alice.do("room.create", name="r", invite=[bob.id])["room_id"]
    alice.engine.intake.take(list(statements(bob, room, number)))
    raw = offer(alice.engine, bob.id, [room])
    assert raw is not None
    return bob, room, decode_bundle(raw)


def _decline(given: tuple[Peer, str, Bundle]) -> None:
    bob, room, config = given
    assert no_to(lambda: Peer("bob", 77).engine, room, config, [bob.id]) is not None


def _taken_back(number: int) -> tuple[Peer, str, str]:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = alice.do("room.create", name="r", invite=[bob.id, eve.id])["room_id"]
    alice.engine.intake.take(list(statements(eve, room, number)))
    alice.do("room.kick", room_id=room, entity=bob.id)
    return alice, bob.id, room


def _tell(given: tuple[Peer, str, str]) -> None:
    alice, whom, room = given
    assert withdrawn(alice.engine, whom, room)


def _read(number: int, peer: Peer) -> tuple[str, OfferRead]:
    by = f"@eve{number % 3}:mallory"
    members = tuple(f"@{'m' * 60}{one}:mallory" for one in range(100))
    room = room_id(by, NOW_MS + number, bytes(16))
    return room, OfferRead(by, "mallory", (peer.id,), "n" * 256, by, members, False)


def _keep(number: int) -> tuple[Peer, list[tuple[str, OfferRead]]]:
    peer = Peer("bob", 1)
    return peer, [_read(one, peer) for one in range(number)]


def _keep_all(given: tuple[Peer, list[tuple[str, OfferRead]]]) -> None:
    peer, offers = given
    for room, read in offers:
        consent.keep(peer.engine, room, read, bytes(1_000))
        consent.is_full(peer.engine, read.creator, read.home)


@contextmanager
def _flooded() -> Iterator[object]:
    """Have one daemon invite without end, and answer some; then let nothing of it wait any more."""
    peer, limits = Peer("bob", 1), OfferLimits()
    for number in range(20 * MAX_OF_DAEMON):
        room, read = _read(number, peer)
        limits.may_read(f"home-{number}")
        if not consent.keep(peer.engine, room, read, bytes(60_000)):
            limits.leave_out(room, read.home)
        elif number % 7 == 0:
            found = peer.store.invitations.get(room)
            assert found is not None
            consent.answer(peer.engine, found, Answer.DECLINED, b"no")
    for number in range(2 * MAX_LEFT_OUT_OF_DAEMON):
        limits.leave_out(f"{number}", "mallory")
    kept = peer.store.invitations.kept()
    assert sum(one.size for one in kept if one.answer is Answer.PENDING) <= consent.MAX_BYTES_OF_DAEMON
    try:
        yield peer, limits
    finally:
        for one in kept:
            peer.store.invitations.drop(one.room_id)
        limits.has_room("mallory")
        peer.store.close()


PROBES = (
    CostProbe(
        name="rooms: a no to an invitation with a long config",
        covers=["messaging.membership.declining:no_to"],
        make=_offered,
        run=_decline,
        size=128,
    ),
    CostProbe(
        name="rooms: an invitation that is taken back",
        covers=["messaging.syncing.answers:withdrawn"],
        make=_taken_back,
        run=_tell,
        size=128,
    ),
    CostProbe(
        name="rooms: invitations that find no room",
        covers=["messaging.membership.consent:keep", "messaging.membership.consent:is_full"],
        make=_keep,
        run=_keep_all,
        size=256,
    ),
    KeptProbe(
        name="rooms: invitations that wait",
        covers=[
            "messaging.membership.consent:answer",
            "messaging.membership.offer_limits:OfferLimits.leave_out",
            "messaging.membership.offer_limits:OfferLimits.may_read",
        ],
        attack=_flooded,
        bound=8 << 20,
    ),
)
