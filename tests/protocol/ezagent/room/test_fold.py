"""From statements to the state that counts: what is struck out, what comes in later, claims in circles."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from protocol.ezagent.configs import ADMIN, BOB, EVE, OWNER, ROOM, Writer, room
from sublet.protocol.ezagent.room.fold import MAX_REASON_CHARS, MAX_TURNS, RETRIES_OF_STATEMENT, evaluate
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.ezagent.room.table import ENCRYPTION
from sublet.protocol.ezagent.yjs.update import Value


def told(state: RoomState) -> tuple[object, ...]:
    return state.entities, state.users, state.levels, state.fields


def test_a_removal_is_kept_as_it_was_written() -> None:
    owner, *_ = room()
    long = "r" * (MAX_REASON_CHARS + 1)
    reasons: list[tuple[Value, str]] = [("spam", "spam"), (long, long[:500]), (1, ""), (None, "")]
    for given, kept in reasons:
        owner.remove(BOB, reason=given, banned=True)
        removal = owner.state().entities[BOB].removals[-1]
        assert (removal.reason, removal.banned, removal.by) == (kept, True, OWNER)
        assert removal.seen["config"]
        owner.grant(BOB, seen=True)
    for given, banned in ((False, False), (1, False), ("true", False), (None, False)):
        owner.remove(BOB, banned=given)
        assert owner.state().entities[BOB].removals[-1].banned is banned
        owner.grant(BOB, seen=True)
    assert (MAX_REASON_CHARS, MAX_TURNS, RETRIES_OF_STATEMENT) == (500, 32, 64)


def test_who_came_before_the_door_was_opened_is_in() -> None:
    owner, _, _, eve = room("invite")
    eve.grant(EVE)
    owner.write(("membership", "policy"), "open")
    owner.hear(eve)
    assert EVE in owner.roles()


def test_who_wrote_before_they_were_given_power_has_written_it() -> None:
    owner, _, bob, eve = room()
    for writer in (bob, eve):
        writer.write(("avatar_hash",), writer.entity)
        if writer is bob:
            owner.power(BOB, 50)
        else:
            owner.grant(EVE, "admin")
        owner.hear(writer)
        assert owner.state().fields["avatar_hash",] == writer.entity


def test_lowered_power_leaves_what_was_seen_of_it_and_what_it_still_reaches() -> None:
    owner, admin, _, eve = room("open")
    admin.write(("avatar_hash",), "seen")
    admin.write(("name",), "seen")
    owner.hear(admin)
    owner.power(ADMIN, 0)
    admin.write(("name",), "unseen")
    admin.remove(BOB)
    owner.hear(admin)
    state = owner.state()
    assert state.fields["avatar_hash",] == "seen"
    assert state.name == "seen"
    assert set(owner.roles()) == {OWNER, ADMIN, BOB}
    eve.grant(EVE)
    owner.hear(eve)
    owner.power(EVE, 50)
    owner.power(EVE, 0)
    eve.remove(EVE)
    owner.hear(eve)
    assert EVE not in owner.roles()  # to leave takes no power


def test_what_less_power_still_reaches_is_asked_of_the_state_of_then() -> None:
    owner, admin, bob, _ = room()
    owner.power(BOB, 0)
    bob.grant(EVE)  # any member may, and Bob has not heard of it
    owner.hear(bob)
    assert EVE in owner.roles()
    owner.power(ADMIN, 80)
    admin.hear(owner)
    admin.power(BOB, 60)
    admin.grant("@guest:a", "admin")
    admin.power("@guest:a", 55)
    owner.power(ADMIN, 60)
    owner.hear(admin)
    state = owner.state()
    assert (state.power(ADMIN), state.power(BOB), state.power("@guest:a")) == (60, 60, 55)
    owner.remove(ADMIN)  # who goes afterwards has let them in all the same
    assert set(owner.roles()) == {OWNER, BOB, EVE, "@guest:a"}


def test_what_less_power_reaches_no_more_is_struck_out_although_it_has_happened() -> None:
    owner, admin, bob, _ = room()
    owner.power(ADMIN, 80)
    owner.power(BOB, 70)
    for writer in (admin, bob):
        writer.hear(owner)
    owner.power(ADMIN, 60)
    admin.remove(BOB)
    admin.write(("power_levels", "admin"), 75)
    owner.hear(admin)
    state = owner.state()
    assert (state.role(BOB), state.power(BOB), state.level("admin").value) == ("member", 70, 50)
    owner.power(ADMIN, 0)
    bob.write(("membership", "policy"), "knock")
    owner.hear(bob)
    admin.grant(EVE)  # where one has to knock, an admin lets in
    owner.hear(admin)
    assert EVE not in owner.roles()


def test_nobody_strikes_out_what_is_more_powerful() -> None:
    owner, admin, bob, _ = room()
    owner.grant(BOB, "admin", seen=True)
    for writer in (admin, bob):
        writer.hear(owner)
    bob.write(("name",), "by bob")
    admin.hear(bob)
    owner.write(("relays",), ["mine"])
    admin.power(BOB, 0)
    admin.remove(OWNER)
    owner.hear(admin, bob)
    state = owner.state()
    assert state.fields["relays",] == ["mine"]
    assert state.name == "by bob"
    assert state.power(BOB) == 50


def test_who_left_and_wrote_on_has_written_nothing_by_that() -> None:
    owner, admin, bob, _ = room()
    admin.remove(ADMIN)
    admin.write(("name",), "behind")
    admin.grant(EVE)
    owner.hear(admin)
    assert set(owner.roles()) == {OWNER, BOB}
    assert owner.state().name == ""
    owner.remove(OWNER)
    owner.grant(BOB, "owner")
    owner.write(("name",), "mine")
    for writer in (owner, bob, admin):
        writer.hear(owner, admin, bob)
        assert writer.roles()[OWNER] == "owner"  # what came behind the leaving made nobody else an owner
        assert told(writer.state()) == told(owner.state())


def test_claims_to_have_seen_what_follows_are_taken_in_one_order_by_all() -> None:
    owner, admin, bob, _ = room("open")
    admin.write(("name",), {"name": "x", "seen": {"config": {"20": 9, "30": 9}}})
    for writer, about in ((admin, BOB), (bob, ADMIN)):
        ahead: Value = {"config": {"20": 99, "30": 99, "40": 99}}
        writer.write(("membership", "members", about), {"role": "left", "seen": ahead})
        writer.write(("membership", "members", writer.entity), {"role": "member", "seen": ahead})
    owner.hear(admin, bob)
    everything = list(owner.known.values())
    expected = told(evaluate(ROOM, everything))
    random = Random(7)
    for _ in range(10):
        random.shuffle(everything)
        assert told(evaluate(ROOM, everything)) == expected
    assert set(owner.roles()) == {OWNER, ADMIN}  # an admin's removal stands, a member's does not


def test_restrictions_of_equals_in_a_long_row_end() -> None:
    owner, *_ = room()
    admins = [Writer(f"@a{number:0>3}:a", 100 + number) for number in range(3 * MAX_TURNS)]
    for admin in admins:
        owner.grant(admin.entity, "admin")
    for admin in admins:
        admin.hear(owner)
    for one, other in pairwise(admins):
        one.write(("membership", "members", f"@of-{one.entity[1:]}"), "member")
        owner.power(one.entity, 99)
        one.hear(owner)
        one.remove(other.entity)
    owner.hear(*admins)
    state = owner.state()
    assert state.role(OWNER) is not None
    again = evaluate(ROOM, reversed(list(owner.known.values())))
    assert told(again) == told(state)


def test_encryption_is_raised_and_never_lowered_whoever_writes_at_the_same_time() -> None:
    owner, admin, _, _ = room()
    owner.write(ENCRYPTION, "transport_only")
    admin.hear(owner)
    for first, second in ((owner, admin), (admin, owner)):
        first.write(ENCRYPTION, "members")
        second.write(ENCRYPTION, "transport_only")
        for _ in range(2):
            first.hear(second)
            second.hear(first)
        assert first.state().fields[ENCRYPTION] == second.state().fields[ENCRYPTION] == "members"
    owner.write(ENCRYPTION, "other")
    owner.write(ENCRYPTION, None)
    assert owner.state().fields[ENCRYPTION] == "members"


def test_only_an_admin_raises_encryption() -> None:
    owner, _, bob, _ = room()
    bob.write(ENCRYPTION, "members")
    owner.hear(bob)
    assert owner.state().fields.get(ENCRYPTION) != "members"
