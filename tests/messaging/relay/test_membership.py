"""Who gets what somebody sends, over random rooms and wishes; and which statements of rooms are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.messaging.relay import membership
from sublet.messaging.relay.membership import RoomTable, Routes, Sent, held_by, may_announce, place_of
from sublet.protocol.federation.relayed_keys import relayed_key
from sublet.protocol.relay.attendance import Attendance
from sublet.protocol.relay.errors import RelayCode, RelayRefusal
from support.relay_accounts import Client

PEOPLE = [Client(name) for name in ("alice", "bob", "carol", "eve")]
ALICE, BOB, CAROL, EVE = PEOPLE
ROOMS = [ALICE.room(at) for at in (1_700_000_000_000, 1_700_000_000_001)]
OF_ROOM = [
    "config/updates",
    "config/state",
    "index/2026-11/updates",
    "delivery",
    "root",
    f"ephemeral/presence/{ALICE.entity}",
]
WHO = st.sets(st.integers(0, 3))


@given(
    st.tuples(WHO, WHO),
    st.tuples(WHO, WHO),
    st.lists(st.tuples(WHO, st.sets(st.integers(0, 1))), min_size=4, max_size=4),
    st.integers(0, 3),
    st.sampled_from(Sent),
)
def test_nothing_goes_to_who_has_not_asked_for_it_or_comes_from_who_is_not_in(
    writers: tuple[set[int], set[int]],
    readers: tuple[set[int], set[int]],
    wishes: list[tuple[set[int], set[int]]],
    sender: int,
    how: Sent,
) -> None:
    table = RoomTable(
        ALICE.states(
            room, [PEOPLE[one] for one in writers[at]], readers=[PEOPLE[one] for one in readers[at] - writers[at]]
        )
        for at, room in enumerate(ROOMS)
    )
    attending = {
        one.node: Attendance(frozenset(PEOPLE[who].node for who in contacts), frozenset(ROOMS[at] for at in rooms))
        for one, (contacts, rooms) in zip(PEOPLE, wishes, strict=True)
    }
    routes, me = Routes(table, attending), PEOPLE[sender]
    for at, room in enumerate(ROOMS):
        within = writers[at] | readers[at]
        for rest in OF_ROOM:
            found = routes.of(me.node, f"ezagent/{room}/{rest}", how)
            writes = how is Sent.PUBLISHED and rest.startswith("index")
            may = sender in (writers[at] if writes else within)
            wanted = {PEOPLE[one].node for one in within if at in wishes[one][1] and one != sender}
            assert found == (wanted if may else set())
    for other in PEOPLE:
        contact = PEOPLE.index(other) in wishes[sender][0] and sender in wishes[PEOPLE.index(other)][0]
        for rest in ("inbox/updates", "identity/challenge"):
            found = routes.of(me.node, f"ezagent/{other.entity}/{rest}", how)
            if other is not me:
                assert found == ({other.node} if contact else set()), "what is private goes to its own daemon alone"
        assert me.node not in routes.of(me.node, f"ezagent/{other.entity}/ext/profile/updates", how)
    reached = routes.of(me.node, "ezagent/blob/" + "0" * 64, how)
    for other in PEOPLE:
        shares = any(
            {sender, PEOPLE.index(other)} <= writers[at] | readers[at]
            and at in wishes[sender][1]
            and at in wishes[PEOPLE.index(other)][1]
            for at in range(2)
        )
        assert (other.node in reached) is (shares and other is not me)


@given(
    st.lists(WHO, min_size=4, max_size=4),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["event", "server"]),
)
def test_a_node_asks_one_that_it_has_named_and_that_has_named_it_in_its_own_name_alone(
    wishes: list[set[int]], sender: int, named: int, recipient: int, what: str
) -> None:
    attending = {
        one.node: Attendance(frozenset(PEOPLE[who].node for who in wanted))
        for one, wanted in zip(PEOPLE, wishes, strict=True)
    }
    routes, me, other = Routes(RoomTable(), attending), PEOPLE[sender], PEOPLE[recipient]
    key = relayed_key(what, other.node, PEOPLE[named].node)
    both = recipient in wishes[sender] and sender in wishes[recipient] and recipient != sender
    assert routes.of(me.node, key, Sent.ASKED) == ({other.node} if both and named == sender else set())
    assert routes.of(me.node, key, Sent.PUBLISHED) == routes.of(me.node, key, Sent.ANNOUNCED) == frozenset()
    assert not may_announce(me.node, key)


@pytest.mark.parametrize(
    "key",
    [
        *(
            "",
            "**",
            "ezagent/federation/event/*/**",
            "ezagent/**",
            "ezagent/*/config/updates",
            "relay/attend",
            "ezagent/x/config",
            "@/x",
        ),
        *(f"ezagent/ROOM{rest}" for rest in ("", "/**", "/index/*/updates", "/config/updates/updates")),
    ],
)
def test_what_is_no_key_of_a_daemon_goes_nowhere(key: str) -> None:
    key = key.replace("ROOM", ROOMS[0])
    table = RoomTable([ALICE.states(ROOMS[0], PEOPLE)])
    attending = {one.node: Attendance(frozenset(other.node for other in PEOPLE), frozenset(ROOMS)) for one in PEOPLE}
    assert Routes(table, attending).of(ALICE.node, key, Sent.ASKED) == frozenset()
    assert not may_announce(ALICE.node, key)


def test_only_ones_own_entities_are_announced_and_in_rooms_alone() -> None:
    key = f"ezagent/{ROOMS[0]}/ephemeral/presence/{ALICE.entity}"
    assert may_announce(ALICE.node, key)
    assert not may_announce(BOB.node, key)
    assert not may_announce(ALICE.node, f"ezagent/{ALICE.entity}/inbox")
    assert place_of("x" * 4_000) is None


def test_statements_count_in_order_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RoomTable()
    with pytest.raises(RelayRefusal) as refused:
        table.check(EVE.states(ROOMS[0], [EVE], creator=ALICE))
    assert refused.value.code is RelayCode.PERMISSION_DENIED
    first = ALICE.states(ROOMS[0], [ALICE, BOB])
    table.check(first)
    table.put(first)
    with pytest.raises(RelayRefusal) as refused:
        table.check(first)
    assert refused.value.code is RelayCode.CONFLICT
    monkeypatch.setattr(membership, "MAX_ROOMS_OF_SIGNER", 1)
    with pytest.raises(RelayRefusal) as refused:
        table.check(ALICE.states(ROOMS[1], [ALICE]))
    assert refused.value.code is RelayCode.QUOTA_EXCEEDED
    second = ALICE.states(ROOMS[0], [ALICE], 2)
    table.check(second)
    table.put(second)
    assert table.statement(ROOMS[0]) == second
    assert len(table) == 1
    bobs = BOB.room()
    table.check(BOB.states(bobs, [BOB]))


def test_looking_for_companions_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "MAX_STEPS", 4)
    table = RoomTable([ALICE.states(ROOMS[0], [ALICE, BOB]), ALICE.states(ROOMS[1], [ALICE, CAROL])])
    attending = {one.node: Attendance(frozenset(), frozenset(ROOMS)) for one in PEOPLE}
    routes = Routes(table, attending)
    assert routes.of(ALICE.node, "ezagent/blob/" + "0" * 64, Sent.ASKED) == {BOB.node}
    monkeypatch.setattr(membership, "MAX_STEPS", 100)
    routes.changed()
    assert routes.of(ALICE.node, "ezagent/blob/" + "0" * 64, Sent.ASKED) == {BOB.node, CAROL.node}


def test_statements_are_counted_in_bytes_by_who_has_made_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RoomTable()
    first, second = ALICE.states(ROOMS[0], [ALICE, BOB]), ALICE.states(ROOMS[1], [ALICE, BOB])
    table.put(first)
    assert table.size == held_by(first)
    monkeypatch.setattr(membership, "MAX_BYTES_OF_SIGNER", held_by(first))
    with pytest.raises(RelayRefusal) as refused:
        table.check(second)
    assert refused.value.code is RelayCode.QUOTA_EXCEEDED
    table.check(ALICE.states(ROOMS[0], [ALICE, CAROL], 2))
    given = ALICE.states(ROOMS[0], [BOB], 2, managers=[BOB])
    table.put(given)
    bobs = BOB.states(ROOMS[0], [BOB], 3, creator=ALICE, managers=[BOB])
    table.check(bobs)
    table.put(bobs)
    table.check(second)
    monkeypatch.setattr(membership, "MAX_BYTES", held_by(bobs))
    with pytest.raises(RelayRefusal):
        table.check(second)
    assert table.drop(ALICE.node) == frozenset()
    assert table.drop(BOB.node) == {ROOMS[0]}
    assert (len(table), table.size) == (0, 0)
    table.check(ALICE.states(ROOMS[0], [ALICE]))
