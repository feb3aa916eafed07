"""Who is a member with which power: decided from the set of statements, so that two peers always agree."""

from __future__ import annotations

from random import Random

import pytest

from protocol.ezagent.configs import ADMIN, BOB, EVE, OWNER, ROOM, Writer, room
from sublet.protocol.ezagent.room.fold import evaluate
from sublet.protocol.ezagent.room.seen import parse_seen
from sublet.protocol.ezagent.room.state import MAX_REMOVALS
from sublet.protocol.ezagent.room.statements import NESTED_MAP
from sublet.protocol.ezagent.yjs.update import Value


def test_a_room_begins_with_its_owner() -> None:
    owner, *_ = room()
    assert owner.roles() == {OWNER: "owner", ADMIN: "admin", BOB: "member"}
    state = owner.state()
    assert [state.power(entity) for entity in (OWNER, ADMIN, BOB, EVE)] == [100, 50, 0, -1]


def test_a_config_that_somebody_else_makes_for_the_room_counts_for_nothing() -> None:
    owner, *_ = room()
    eve = Writer(EVE, 1)
    eve.found()
    eve.grant(EVE, "owner")
    owner.hear(eve)
    assert owner.roles() == {OWNER: "owner", ADMIN: "admin", BOB: "member"}
    assert evaluate(ROOM, eve.known.values()).members() == {}


def test_a_member_invites_and_a_stranger_does_not() -> None:
    owner, _, bob, eve = room()
    eve.grant("@carl:a")
    bob.grant("@dora:a")
    owner.hear(bob, eve)
    assert set(owner.roles()) == {OWNER, ADMIN, BOB, "@dora:a"}


def test_whom_a_stranger_invites_stays_out_even_when_the_stranger_comes_in_later() -> None:
    owner, _, _, eve = room()
    eve.grant("@carl:a")
    owner.hear(eve)
    owner.grant(EVE, seen=True)
    assert EVE in owner.roles()
    assert "@carl:a" not in owner.roles()


@pytest.mark.parametrize(("policy", "inside"), [("open", True), ("invite", False), ("knock", False)])
def test_only_an_open_room_is_joined_by_oneself(policy: str, inside: bool) -> None:
    owner, _, _, eve = room(policy)
    eve.grant(EVE)
    owner.hear(eve)
    assert (EVE in owner.roles()) is inside


def test_nobody_gives_themselves_more() -> None:
    owner, admin, bob, eve = room("open")
    eve.grant(EVE, "admin")
    bob.grant(BOB, "admin")
    bob.power(BOB, 100)
    admin.grant(ADMIN, "owner")
    admin.power(ADMIN, 100)
    admin.power(OWNER, 0)
    admin.write(("power_levels", "admin"), 100)
    owner.hear(admin, bob, eve)
    state = owner.state()
    assert [state.power(entity) for entity in (OWNER, ADMIN, BOB, EVE)] == [100, 50, 0, -1]
    assert state.level("admin").value == 50


def test_a_knock_waits_for_an_admin() -> None:
    owner, admin, bob, eve = room("knock")
    eve.write(("membership", "knocks", EVE), {"text": "hello"})
    bob.hear(eve)
    bob.grant(EVE)
    owner.hear(bob, eve)
    assert EVE not in owner.roles()
    assert owner.state().fields["membership", "knocks", EVE] == {"text": "hello"}
    admin.hear(eve)
    admin.grant(EVE)
    admin.write(("membership", "knocks", EVE), None)
    owner.hear(admin)
    assert owner.roles()[EVE] == "member"
    assert ("membership", "knocks", EVE) not in owner.state().fields


def test_removal_beats_a_concurrent_grant() -> None:
    owner, admin, bob, _ = room()
    owner.remove(BOB)
    admin.grant(BOB)  # knows nothing of the removal
    for writer in (owner, admin):
        writer.hear(owner, admin, bob)
        assert BOB not in writer.roles()
    admin.grant(BOB)  # knows it, and takes Bob back
    owner.hear(admin)
    assert owner.roles()[BOB] == "member"


def test_what_a_removed_admin_wrote_counts_only_if_the_removal_had_seen_it() -> None:
    owner, admin, _, _ = room()
    admin.grant("@before:a")
    owner.hear(admin)
    admin.grant("@after:a")
    owner.remove(ADMIN)
    admin.grant("@later:a")
    owner.hear(admin)
    assert set(owner.roles()) == {OWNER, BOB, "@before:a"}


def test_a_removed_admins_removals_fall_too() -> None:
    owner, admin, bob, _ = room()
    admin.remove(BOB)
    owner.remove(ADMIN)
    owner.hear(admin)
    assert set(owner.roles()) == {OWNER, BOB}
    assert bob.entity == BOB


def test_removal_asks_for_more_power_than_it_takes() -> None:
    owner, admin, bob, _ = room()
    owner.grant("@other:a", "admin")
    admin.hear(owner)
    admin.remove("@other:a")
    admin.remove(OWNER)
    bob.remove(ADMIN)
    owner.hear(admin, bob)
    assert set(owner.roles()) == {OWNER, ADMIN, BOB, "@other:a"}


def test_who_was_banned_does_not_come_back_alone() -> None:
    owner, _, bob, _ = room("open")
    owner.remove(BOB, banned=True, reason="spam")
    bob.hear(owner)
    bob.grant(BOB)
    owner.hear(bob)
    assert BOB not in owner.roles()
    owner.grant(BOB)
    assert owner.roles()[BOB] == "member"


def test_the_last_owner_can_not_leave() -> None:
    owner, admin, *_ = room()
    owner.remove(OWNER)
    assert owner.roles()[OWNER] == "owner"
    owner.grant(ADMIN, "owner")
    admin.hear(owner)
    owner.remove(OWNER)
    admin.remove(ADMIN)  # both leave at once: one of them stays
    owner.hear(admin)
    admin.hear(owner)
    assert owner.roles() == admin.roles()
    assert list(owner.roles().values()).count("owner") == 1


def test_nobody_removes_the_last_owner() -> None:
    owner, admin, *_ = room()
    owner.power(ADMIN, 100)
    admin.hear(owner)
    owner.power(OWNER, 10)
    admin.remove(OWNER)
    owner.hear(admin)
    assert owner.roles()[OWNER] == "owner"
    assert owner.state().power(OWNER) == 100


def test_what_the_creator_writes_after_the_founding_is_checked_like_anything_else() -> None:
    owner, admin, *_ = room()
    owner.grant(ADMIN, "owner")
    admin.hear(owner)
    owner.remove(OWNER)
    owner.write(("name",), "mine")
    owner.grant(EVE)
    admin.hear(owner)
    assert admin.roles() == {ADMIN: "owner", BOB: "member"}
    assert admin.state().name == ""


def test_a_member_leaves_and_their_earlier_messages_stay() -> None:
    owner, _, bob, _ = room()
    leaving: Value = {"role": "left", "seen": {"config": {"20": 0}, "index/2026-11": {"21": 30}}}
    bob.write(("membership", "members", BOB), leaving)
    owner.hear(bob)
    state = owner.state()
    assert BOB not in owner.roles()
    assert state.counts(BOB, "index/2026-11", (21, 29))
    assert not state.counts(BOB, "index/2026-11", (21, 30))
    assert not state.counts(BOB, "index/2026-10", (21, 0))


def test_back_dating_and_waiting_for_ones_return_gain_nothing() -> None:
    owner, *_ = room()
    owner.write(("membership", "members", BOB), {"role": "left", "seen": {"index/2026-11": {"21": 30}}})
    assert not owner.state().counts(BOB, "index/2026-11", (21, 31))
    owner.write(("membership", "members", BOB), {"role": "member", "seen": {"index/2026-11": {"21": 40}}})
    state = owner.state()
    counted = [clock for clock in range(28, 44) if state.counts(BOB, "index/2026-11", (21, clock))]
    assert counted == [28, 29, 40, 41, 42, 43]


def test_who_lost_power_keeps_what_was_seen() -> None:
    owner, *_ = room()
    owner.write(("power_levels", "events_default"), {"level": 50, "seen": {"index/2026-11": {"21": 30}}})
    state = owner.state()
    assert state.counts(BOB, "index/2026-11", (21, 29))
    assert not state.counts(BOB, "index/2026-11", (21, 30))
    assert state.counts(ADMIN, "index/2026-11", (31, 99))


def test_only_ones_own_watch_and_nobody_elses() -> None:
    owner, admin, bob, eve = room()
    owner.write(("ext", "watch"), NESTED_MAP)
    for writer in (admin, bob, eve):
        writer.hear(owner)
        writer.write(("ext", "watch", writer.entity), {"channels": ["a"]})
    bob.write(("ext", "watch", ADMIN), {"channels": []})
    bob.write(("ext", "moderation"), {"power_level": 0})
    owner.hear(admin, bob, eve)
    watches = {path[2]: value for path, value in owner.state().fields.items() if path[:2] == ("ext", "watch")}
    assert watches == {ADMIN: {"channels": ["a"]}, BOB: {"channels": ["a"]}}
    assert ("ext", "moderation") not in owner.state().fields


def test_the_structure_of_a_config_can_not_be_replaced() -> None:
    owner, admin, *_ = room()
    admin.write(("membership",), NESTED_MAP)
    admin.write(("membership", "members"), NESTED_MAP)
    admin.grant(ADMIN, "owner")
    admin.grant(EVE, "owner")
    owner.hear(admin)
    assert owner.roles() == {OWNER: "owner", ADMIN: "admin", BOB: "member"}


@pytest.mark.parametrize(
    "value", [None, 1, {"config": 1}, {"config": {"x": 1}}, {"config": {"1": -1}}, {"config": {"1": True}}]
)
def test_a_vector_of_another_shape_covers_nothing(value: Value) -> None:
    assert parse_seen(value) is None


@pytest.mark.parametrize("seed", range(60))
def test_every_peer_finds_the_same_state_whatever_it_heard_first(seed: int) -> None:
    random = Random(seed)
    writers = list(room(random.choice(["open", "knock", "invite"])))
    entities = [OWNER, ADMIN, BOB, EVE, "@carl:a"]
    for _ in range(20):
        writer = random.choice(writers)
        about = random.choice(entities)
        match random.randrange(6):
            case 0:
                writer.remove(about, banned=random.random() < 0.3)
            case 1:
                writer.power(about, random.randrange(101))
            case 2:
                writer.hear(random.choice(writers))
            case 3:
                writer.write(("membership", "policy"), random.choice(["open", "knock", "invite"]))
            case _:
                writer.grant(about, random.choice(["member", "admin", "owner"]), seen=random.random() < 0.5)
    everything = [statement for writer in writers for statement in writer.known.values()]
    expected = evaluate(ROOM, sorted(everything, key=lambda statement: statement.id))
    for _ in range(3):
        random.shuffle(everything)
        state = evaluate(ROOM, everything)
        assert (state.entities, state.users, state.levels) == (expected.entities, expected.users, expected.levels)
    assert "owner" in [str(role) for role in expected.members().values()]


def test_who_was_removed_very_often_comes_back_no_more() -> None:
    owner, _, _, eve = room("open")
    for _ in range(MAX_REMOVALS):
        eve.hear(owner)
        eve.grant(EVE)
        owner.hear(eve)
        assert EVE in owner.roles()
        owner.remove(EVE)
        assert EVE not in owner.roles()
    eve.hear(owner)
    eve.grant(EVE)
    owner.hear(eve)
    assert EVE not in owner.roles()
