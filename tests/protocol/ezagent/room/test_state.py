"""What a room's config says: levels as they were at a time, memberships, and power."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.ezagent.ids import room_id
from sublet.protocol.ezagent.room.ancestry import Ancestry, KnownWrites
from sublet.protocol.ezagent.room.seen import Seen
from sublet.protocol.ezagent.room.state import (
    MAX_GRANTS,
    MAX_LEVELS_KEPT,
    MAX_REMOVALS,
    NO_POWER,
    ROLE_POWER,
    Level,
    Membership,
    MembershipGrant,
    Policy,
    Removal,
    Role,
    RoomState,
)
from sublet.protocol.ezagent.yjs.update import ItemId, Value

ROOM = room_id("@a:b", 1_771_668_300_000, b"s" * 16)
A, B, C = "@a:b", "@b:b", "@c:b"
DOC = "index/2026-11"


def seen(clock: int | None) -> Seen | None:
    return None if clock is None else {DOC: {1: clock}}


LEVELS = st.lists(st.tuples(st.integers(0, 100), st.none() | st.integers(0, 6)), min_size=1, max_size=5)


def chain(levels: Sequence[tuple[int, int | None]]) -> Level:
    found: Level | None = None
    for value, clock in levels:
        found = Level(value, seen(clock)).after(found)
    assert found is not None
    return found


def values(level: Level | None) -> list[int]:
    found = []
    while level is not None:
        found.append(level.value)
        level = level.before
    return found


@given(LEVELS, st.integers(0, 7))
def test_a_level_holds_from_what_its_writer_had_seen_on(levels: list[tuple[int, int | None]], clock: int) -> None:
    held = next((value for value, upto in reversed(levels) if upto is None or clock >= upto), None)
    at = chain(levels).at(DOC, (1, clock))
    assert (None if at is None else at.value) == held
    elsewhere = chain(levels).at("other", (1, clock))
    assert elsewhere is not None
    assert elsewhere.value == levels[-1][0]


@pytest.mark.parametrize("count", [1, 2, MAX_LEVELS_KEPT, MAX_LEVELS_KEPT + 1, MAX_LEVELS_KEPT + 2, 80])
def test_a_number_of_levels_is_known(count: int) -> None:
    assert MAX_LEVELS_KEPT == 32
    assert values(chain([(number, number) for number in range(count)])) == [*reversed(range(count))][:33]


# Memberships


def grant(item: int, clock: int | None = None, *, role: Role = Role.MEMBER, first: bool = False) -> MembershipGrant:
    return MembershipGrant((2, item), role, A, seen(clock), KnownWrites(ANCESTRY, (2, item), first))


def removal(item: int, clock: int, *, banned: bool = False) -> Removal:
    return Removal((2, item), A, {DOC: {1: clock}}, banned, "")


ANCESTRY = Ancestry({(2, 1): None, (2, 2): (2, 1), (2, 3): (2, 2), (2, 4): (2, 3), (2, 5): (2, 4), (2, 9): None})
"""Writes one after the other, and one whose writer knew none of them."""


def counted(membership: Membership) -> list[int]:
    return [clock for clock in range(10) if membership.counts(DOC, (1, clock))]


@pytest.mark.parametrize(
    ("events", "holds", "counts"),
    [
        ([], None, ""),
        ([grant(1)], 1, "0123456789"),
        ([grant(1, 3)], 1, "0123456789"),
        ([grant(1, 3, first=True)], 1, "3456789"),
        ([grant(1, first=True), removal(2, 4)], None, "0123"),
        ([grant(1, 2, first=True), removal(2, 4)], None, "23"),
        ([grant(1, 2), removal(2, 4)], None, "0123"),
        ([grant(1), removal(2, 4), grant(3, 6)], 3, "01236789"),
        ([grant(1), removal(2, 4), grant(3)], 3, "0123456789"),
        ([grant(1), removal(2, 4), grant(9)], None, "0123"),
        ([grant(9), grant(1), removal(2, 4)], None, "0123"),
        ([grant(1), removal(2, 4), grant(3, 6), removal(4, 8)], None, "012367"),
        ([grant(1), removal(2, 4), grant(3, 6), removal(4, 8), grant(5, 9)], 5, "0123679"),
        ([grant(1), removal(2, 4), removal(4, 2)], None, "01"),
        ([grant(1), removal(4, 2), grant(5)], 5, "0123456789"),
        ([grant(1), grant(2, 5)], 2, "0123456789"),
        ([grant(1), grant(2)], 2, "0123456789"),
        ([removal(1, 4)], None, ""),
    ],
    ids=range(18),
)
def test_what_was_written_as_a_member_counts(
    events: list[MembershipGrant | Removal], holds: int | None, counts: str
) -> None:
    membership = Membership()
    for event in events:
        membership.grant(event) if isinstance(event, MembershipGrant) else membership.remove(event)
    current = membership.current()
    assert (None if current is None else current.id[1]) == holds
    assert "".join(map(str, counted(membership))) == counts
    assert membership.grants == [event for event in events if isinstance(event, MembershipGrant)]
    assert membership.removals == [event for event in events if isinstance(event, Removal)]


def test_the_last_removal_tells_of_a_ban() -> None:
    membership = Membership()
    assert not membership.banned()
    for banned in (True, False, True):
        membership.remove(removal(2, 4, banned=banned))
        assert membership.banned() is banned


# Rooms


def state(**roles: Role) -> RoomState:
    made = RoomState(ROOM)
    for name, role in roles.items():
        made.entities[f"@{name}:b"] = Membership()
        made.entities[f"@{name}:b"].grant(grant(1, role=role))
        if role is Role.OWNER:
            made.owners[f"@{name}:b"] = None
    return made


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        *(("open", Policy.OPEN), ("knock", Policy.KNOCK), ("invite", Policy.INVITE)),
        *(("OPEN", Policy.INVITE), (None, Policy.INVITE), (1, Policy.INVITE), (["open"], Policy.INVITE)),
    ],
)
def test_a_room_is_by_invitation_unless_it_says_otherwise(value: Value, policy: Policy) -> None:
    made = RoomState(ROOM)
    assert made.policy is Policy.INVITE
    made.fields["membership", "policy"] = value
    assert made.policy is policy


def test_fields_of_another_shape_are_as_if_they_were_not_there() -> None:
    made = RoomState(ROOM)
    assert (made.name, made.enabled_extensions, made.creator) == ("", (), None)
    made.fields = {("name",): "Room", ("enabled_extensions",): ["a", 1, "b", None]}
    assert (made.name, made.enabled_extensions) == ("Room", ("a", "b"))
    made.fields = {("name",): 1, ("enabled_extensions",): "ab"}
    assert (made.name, made.enabled_extensions) == ("", ())


def test_members_are_those_with_a_grant_that_holds() -> None:
    made = state(c=Role.MEMBER, a=Role.OWNER, b=Role.ADMIN)
    assert list(made.members().items()) == [(A, Role.OWNER), (B, Role.ADMIN), (C, Role.MEMBER)]
    made.entities[B].remove(removal(2, 4))
    assert (made.role(A), made.role(B), made.role("@d:b")) == (Role.OWNER, None, None)
    assert list(made.members()) == [A, C]


def test_another_owner_is_found_and_asked_first_the_next_time() -> None:
    made = state(a=Role.OWNER, b=Role.OWNER, c=Role.OWNER)
    made.entities[A].remove(removal(2, 4))
    assert made.has_other_owner(C)
    assert list(made.owners) == [B, A, C]
    assert made.has_other_owner(B)
    assert list(made.owners) == [C, B, A]
    assert made.has_other_owner(A)
    assert list(made.owners) == [C, B, A]
    made.entities[B].remove(removal(2, 4))
    assert not made.has_other_owner(C)
    assert made.has_other_owner(B)
    made.entities[B] = Membership()
    made.entities[B].grant(grant(1, role=Role.ADMIN))
    assert not made.has_other_owner(C)
    assert made == RoomState(ROOM, None, made.entities)  # in which order owners are asked is nobody's business


def test_levels_that_nobody_wrote() -> None:
    made = RoomState(ROOM)
    names = ("default", "events_default", "admin", "moderation")
    assert [made.level(name).value for name in names] == [0, 0, 50, 50]
    assert [made.highest_level(name) for name in names] == [0, 0, 50, 50]
    made.levels["admin"] = chain([(70, 1), (20, 2), (40, 3)])
    made.levels["default"] = chain([(5, 1), (3, 2)])
    assert (made.level("admin").value, made.highest_level("admin")) == (40, 70)
    assert (made.level("default").value, made.highest_level("default")) == (3, 5)
    made.levels["moderation"] = chain([(10, 1)])
    assert (made.level("moderation").value, made.highest_level("moderation")) == (10, 50)


def test_power_is_what_the_role_has_or_what_was_given() -> None:
    assert dict(ROLE_POWER) == {Role.OWNER: 100, Role.ADMIN: 50, Role.MEMBER: 0, Role.LEFT: -1}
    assert (NO_POWER, MAX_REMOVALS, MAX_GRANTS) == (-1, 128, 256)
    made = state(a=Role.OWNER, b=Role.ADMIN, c=Role.MEMBER)
    assert [made.power(one) for one in (A, B, C, "@d:b")] == [100, 50, 0, -1]
    made.levels["default"] = Level(60)
    assert [made.power(one) for one in (A, B, C)] == [100, 60, 60]
    made.users = {A: Level(10), B: chain([(90, 2), (70, 4)]), C: Level(0), "@d:b": Level(100)}
    assert [made.power(one) for one in (A, B, C, "@d:b")] == [10, 70, 0, -1]
    assert [made.least_power(one) for one in (A, B, C, "@d:b")] == [10, 60, 0, -1]
    made.users[B] = chain([(90, 2), (30, 3), (70, 4)])
    assert made.least_power(B) == 30
    made.levels.clear()
    assert [made.least_power(one) for one in (A, B, C)] == [10, 30, 0]
    made.users.clear()
    assert [made.least_power(one) for one in (A, B, C)] == [100, 50, 0]


@pytest.mark.parametrize(
    ("needed", "user", "level", "counts"),
    [
        ([], [], "events_default", "0123456789"),
        ([(1, 5)], [], "events_default", "01234"),
        ([(1, 5), (0, 7)], [], "events_default", "01234789"),
        ([(1, 5), (1, 7)], [], "events_default", "01234"),
        ([(1, None)], [], "events_default", ""),
        ([(0, None)], [], "events_default", "0123456789"),
        ([(1, 5)], [(1, 7)], "events_default", "01234789"),
        ([(1, 5)], [(1, 7), (0, 9)], "events_default", "0123478"),
        ([(1, 5)], [(0, 2)], "events_default", "01234"),
        ([], [], "ext", ""),
        ([], [(50, 3)], "ext", "3456789"),
        ([(0, 3)], [], "ext", "3456789"),
    ],
)
def test_what_was_written_counts_with_the_power_of_its_time(
    needed: list[tuple[int, int | None]], user: list[tuple[int, int | None]], level: str, counts: str
) -> None:
    made = state(a=Role.MEMBER)
    if needed:
        made.levels[level] = chain(needed)
    if user:
        made.users[A] = chain(user)

    def counted(signer: str, made: RoomState = made) -> str:
        items: list[ItemId] = [(1, clock) for clock in range(10)]
        return "".join(str(item[1]) for item in items if made.counts(signer, DOC, item, level))

    assert counted(A) == counts
    assert counted("@d:b") == ""
    if level == "events_default":
        assert [made.counts(A, DOC, (1, clock)) for clock in range(10)] == [str(clock) in counts for clock in range(10)]
    made.entities[A].remove(removal(2, 6))
    assert counted(A) == "012345"  # what a removal covers was written with the power of that time
    made.entities.clear()
    assert counted(A) == ""


def test_the_room_wide_default_gives_power_as_well() -> None:
    made = state(a=Role.MEMBER)
    made.levels = {"default": Level(50), "events_default": Level(50)}
    assert made.counts(A, DOC, (1, 1))
    made.levels["default"] = Level(49)
    assert not made.counts(A, DOC, (1, 1))
