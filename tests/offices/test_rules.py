"""The rules of offices, without any connection: every order of joining and leaving keeps what always holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.offices.rules import (
    CROWDED,
    FULL,
    HAS_AGENT,
    LEAVE_FIRST,
    MAX_MEMBERS,
    MAX_WAITING,
    NOT_THERE,
    NOT_YOURS,
    Offices,
)
from sublet.offices.seats import Cut, Effect, Member, Seat, Tell
from sublet.protocol.offices.names import Notice, Role, ServerEvent
from sublet.protocol.offices.requests import Cancel, Join, ListRoom


def seat(name: str, role: Role = Role.COMPUTER, office: str = "a") -> Seat:
    return Seat(office, office, role, name, f"{office}-{name}")


def join(one: Seat) -> Join:
    return Join(one.role, one.name, one.office_id)


def there(offices: Offices, office: str = "a") -> list[str]:
    return [member.sid for member in offices.members_of(office)]


def test_a_member_is_seated_before_others_hear_of_it_and_stands_after() -> None:
    offices, alice, bob = Offices(), seat("alice", Role.AGENT), seat("bob")
    assert offices.connected("1", [alice])
    assert offices.connected("2", [bob])
    assert offices.join("1", join(alice)).effects == ()
    came = offices.join("2", join(bob))
    assert came.effects == (Tell(("1",), Notice.ENTER, {"office_id": "a", "computer": "bob"}),)
    assert offices.computer("1", "alice", "bob") == "2"
    assert offices.leave("2", "a").effects == (Tell(("1",), Notice.LEAVE, {"office_id": "a", "computer": "bob"}),)
    assert offices.computer("1", "alice", "bob") is None
    assert offices.leave("2", "a").why == NOT_THERE


def test_joining_twice_changes_nothing() -> None:
    offices, bob = Offices(), seat("bob")
    offices.connected("1", [bob])
    assert offices.join("1", join(bob)).ok
    assert offices.join("1", join(bob)) == offices.join("1", join(bob))
    assert offices.join("1", join(bob)).effects == ()


def test_a_connection_without_tokens_or_with_two_roles_is_none() -> None:
    offices = Offices()
    assert not offices.connected("1", [])
    assert not offices.connected("1", [seat("bob"), seat("alice", Role.AGENT)])
    assert offices.join("1", join(seat("bob"))).why == NOT_YOURS
    assert offices.gone("1") == ()


def test_connections_of_one_token_that_sit_nowhere_are_few_and_the_oldest_give_way() -> None:
    offices, bob, carol = Offices(), seat("bob"), seat("carol")
    offices.connected("seated", [bob])
    offices.join("seated", join(bob))
    offices.connected("carol", [carol])
    for number in range(MAX_WAITING):
        offices.connected(str(number), [bob])
        assert offices.crowded(str(number)) == ()
    offices.connected("next", [bob])
    assert offices.crowded("next") == (Cut("0", CROWDED),)
    assert offices.member("0") is None
    assert there(offices) == ["seated"]
    assert offices.member("carol") is not None
    for sid in ("seated", "next", "carol", *map(str, range(1, MAX_WAITING))):
        offices.gone(sid)
    assert offices._holders == {}


def test_one_agent_at_a_time_and_an_agent_leaves_by_itself() -> None:
    offices, alice, eve = Offices(), seat("alice", Role.AGENT), seat("eve", Role.AGENT)
    elsewhere = seat("alice", Role.AGENT, "b")
    offices.connected("1", [alice, elsewhere])
    offices.connected("2", [eve])
    assert offices.join("1", join(alice)).ok
    assert offices.join("2", join(eve)).why == HAS_AGENT
    assert offices.join("1", join(elsewhere)).why == LEAVE_FIRST
    assert there(offices, "b") == []
    offices.gone("1")
    assert offices.join("2", join(eve)).ok


def test_the_same_token_takes_the_place_of_its_former_connection() -> None:
    offices, alice, bob = Offices(), seat("alice", Role.AGENT), seat("bob")
    for sid, one in (("1", alice), ("2", bob), ("3", bob), ("4", alice)):
        offices.connected(sid, [one])
    offices.join("1", join(alice))
    offices.join("2", join(bob))
    replaced = offices.join("3", join(bob))
    assert [type(effect) for effect in replaced.effects] == [Tell, Cut, Tell]
    assert replaced.effects[1] == Cut("2", "another connection has come with the same token")
    assert there(offices) == ["1", "3"]
    assert offices.join("4", join(alice)).ok
    assert there(offices) == ["4", "3"]
    # The end of the old one, which comes later, changes nothing.
    assert offices.gone("2") == ()
    assert there(offices) == ["4", "3"]


def test_a_full_office_takes_back_who_was_there() -> None:
    offices, last = Offices(), seat("last")
    for number in range(MAX_MEMBERS):
        one = seat(f"c{number}")
        offices.connected(one.name, [one])
        assert offices.join(one.name, join(one)).ok
    offices.connected("last", [last])
    assert offices.join("last", join(last)).why == FULL
    again = seat("c7")
    offices.connected("again", [again])
    assert offices.join("again", join(again)).ok


def test_revoking_a_token_ends_each_connection_that_came_with_it() -> None:
    offices, alice, bob = Offices(), seat("alice", Role.AGENT), seat("bob")
    for sid, one in (("1", alice), ("2", bob), ("3", bob)):
        offices.connected(sid, [one])
    offices.join("1", join(alice))
    offices.join("2", join(bob))
    effects = offices.revoke({bob.token_id}, "why")
    assert [type(effect) for effect in effects] == [Tell, Cut, Cut]
    assert there(offices) == ["1"]
    assert offices.join("3", join(bob)).why == NOT_YOURS


@pytest.mark.parametrize("event", list(ServerEvent)[3:7])
def test_updates_and_cancels_are_of_ones_own_office_and_name(event: ServerEvent) -> None:
    offices, alice, bob = Offices(), seat("alice", Role.AGENT), seat("bob")
    offices.connected("1", [alice])
    offices.connected("2", [bob])
    assert not offices.update("2", event, "bob").ok
    offices.join("1", join(alice))
    offices.join("2", join(bob))
    (told,) = offices.update("2", event, "bob").effects
    assert isinstance(told, Tell)
    assert told.sids == ("1",)
    assert not offices.update("2", event, "carol").ok
    assert not offices.update("1", event, "alice").ok
    assert offices.cancel("1", Cancel("alice", "r")).effects == (
        Tell(("2",), Notice.CANCEL, {"agent": "alice", "req_id": "r"}),
    )
    assert not offices.cancel("1", Cancel("eve", "r")).ok
    assert not offices.cancel("2", Cancel("alice", "r")).ok


def test_who_is_there_is_told_to_holders_of_a_token_of_that_office() -> None:
    offices, alice, bob = Offices(), seat("alice", Role.AGENT), seat("bob")
    offices.connected("1", [alice])
    offices.connected("2", [bob])
    offices.join("2", join(bob))
    assert offices.list_room("1", ListRoom("alice", "q", "a")) == [
        {"sid": "2", "name": "bob", "role": "computer", "office_id": "a"}
    ]
    assert offices.list_room("1", ListRoom("bob", "q", "a")) is None
    assert offices.list_room("1", ListRoom("alice", "q", "b")) is None
    assert offices.list_room("9", ListRoom("alice", "q", "a")) is None


class Watched(dict[str, dict[str, Member]]):
    """Keeps for which offices somebody has looked."""

    def __init__(self, there: dict[str, dict[str, Member]]) -> None:
        super().__init__(there)
        self.looked: list[object] = []

    def __getitem__(self, key: str) -> dict[str, Member]:
        self.looked.append(key)
        return super().__getitem__(key)

    def get(self, key: str, default: object = None) -> Any:
        self.looked.append(key)
        return super().get(key, default)


def test_whoever_asks_about_another_office_has_nobody_look_whether_it_is_there() -> None:
    """So the answer takes the same time: no path depends on it."""
    offices, alice, bob, theirs = Offices(), seat("alice", Role.AGENT), seat("bob"), seat("dave", office="b")
    for sid, one in (("1", alice), ("2", bob), ("3", theirs)):
        offices.connected(sid, [one])
        assert offices.join(sid, join(one)).ok
    watched = offices._seated = Watched(offices._seated)
    for office in ("b", "nowhere"):
        for sid, role in (("1", Role.AGENT), ("2", Role.COMPUTER)):
            assert offices.join(sid, Join(role, "dave", office)).why == NOT_YOURS
            assert offices.leave(sid, office).why == NOT_THERE
            assert offices.list_room(sid, ListRoom("alice", "q", office)) is None
    assert watched.looked == []
    assert offices.computer("1", "alice", "dave") is None
    assert offices.computer("1", "alice", "nobody") is None
    assert set(watched.looked) == {"a"}


NAMES = ("alice", "eve", "bob", "carol")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("connect", "join", "leave", "gone", "revoke")),
        st.integers(0, 5),
        st.sampled_from(NAMES),
        st.sampled_from("ab"),
    ),
    max_size=40,
)


@given(STEPS)
def test_what_always_holds(steps: list[tuple[str, int, str, str]]) -> None:
    """One Agent for each office, one connection for each name, and each notice only to those who sit there."""
    offices = Offices()
    seats = {
        (name, office): seat(name, Role.AGENT if name in NAMES[:2] else Role.COMPUTER, office)
        for name in NAMES
        for office in "ab"
    }
    for what, number, name, office in steps:
        sid, before = str(number), {one: set(there(offices, one)) for one in "ab"}
        effects: tuple[Effect, ...] = ()
        match what:
            case "connect":
                if offices.member(sid) is None:
                    offices.connected(sid, [seats[name, "a"], seats[name, "b"]])
            case "join":
                effects = offices.join(sid, join(seats[name, office])).effects
            case "leave":
                effects = offices.leave(sid, office).effects
            case "gone":
                effects = offices.gone(sid)
            case _:
                effects = offices.revoke({seats[name, office].token_id}, "why")
        after = {one: set(there(offices, one)) for one in "ab"}
        for effect in effects:
            if isinstance(effect, Tell):
                assert isinstance(effect.data, dict)
                of = str(effect.data["office_id"])
                assert set(effect.sids) <= before[of] | after[of]
        for one in "ab":
            members = offices.members_of(one)
            assert sum(member.role is Role.AGENT for member in members) <= 1
            assert all(
                member.seat in member.seats and member.seat and member.seat.office_id == one for member in members
            )
            assert len({member.seat and member.seat.name for member in members}) == len(members)
        assert not after["a"] & after["b"]
