"""The order of a room: one rule over signed facts, alike on every replica, and nobody stands last for ever."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from sublet.protocol.ezagent.ids import own_ref_id, ref_id
from sublet.protocol.ezagent.order import (
    TICK_BITS,
    After,
    Place,
    least_rank,
    parse_after,
    rank_of,
    rank_text,
    stands_at_ms,
)
from sublet.protocol.ezagent.ref_shape import LAST_MS
from sublet.protocol.ezagent.yjs.update import MAX_CLIENT, MAX_CLOCK

NOW_MS = 1_795_852_800_000
ROOM, ANN = "r", "@ann:a"


@dataclass(frozen=True)
class Ref:
    """What one writer has signed: a time, and what it says that it had seen."""

    writer: int
    clock: int
    at_ms: int
    seen: tuple[Ref, ...]

    @property
    def id(self) -> str:
        return ref_id(self.at_ms, self.writer.to_bytes(5, "big") + self.clock.to_bytes(5, "big"))


@dataclass
class Replica:
    """What one reader has, placed in whichever order it came; causes come before effects, as the intake holds them."""

    ranks: dict[Ref, int] = field(default_factory=dict)

    def take(self, ref: Ref) -> None:
        self.ranks[ref] = rank_of(ref.id, [self.ranks[one] for one in ref.seen])

    def order(self) -> list[Ref]:
        return sorted(self.ranks, key=lambda ref: Place(self.ranks[ref], ref.writer, ref.clock, ""))


class Members:
    """Honest members who write behind what they see, and hostile ones who claim any time and to have seen anything."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        self.clocks = dict.fromkeys(range(6), 0)
        self.ahead = {member: self.choice.choice([0, 0, 40 * 86_400_000, -40 * 86_400_000]) for member in (0, 1, 2)}
        self.replicas = {member: Replica() for member in self.clocks}
        self.all: list[Ref] = []
        self.now = NOW_MS

    def write(self, member: int, at_ms: int, seen: tuple[Ref, ...]) -> Ref:
        ref = Ref(member, self.clocks[member], at_ms, seen)
        self.clocks[member] += 1
        self.all.append(ref)
        self.replicas[member].take(ref)
        return ref

    def honest(self, member: int) -> Ref:
        order = self.replicas[member].order()
        return self.write(member, self.now + self.ahead[member], tuple(order[-1:]))

    def hostile(self, member: int) -> Ref:
        at_ms = self.choice.choice([0, 1, self.now, self.now + 10**9, LAST_MS, LAST_MS + 10**9])
        known = list(self.replicas[member].ranks)
        return self.write(member, at_ms, tuple(self.choice.sample(known, min(len(known), self.choice.randint(0, 2)))))

    def hear(self, member: int, ref: Ref) -> None:
        replica = self.replicas[member]
        for one in ref.seen:
            if one not in replica.ranks:
                self.hear(member, one)
        if ref not in replica.ranks:
            replica.take(ref)

    def step(self) -> None:
        self.now += self.choice.randint(0, 60_000)
        turn = self.choice.random()
        if turn < 0.35:
            self.honest(self.choice.randint(0, 2))
        elif turn < 0.6:
            self.hostile(self.choice.randint(3, 5))
        elif self.all:
            self.hear(self.choice.randint(0, 5), self.choice.choice(self.all))


@pytest.mark.parametrize("seed", range(60))
def test_all_replicas_have_one_order_however_it_came_and_an_answer_stands_behind_all_that_was_seen(seed: int) -> None:
    members = Members(seed)
    for _ in range(150):
        members.step()
    for member in members.replicas:
        for ref in members.choice.sample(members.all, len(members.all)):
            members.hear(member, ref)
    orders = [replica.order() for replica in members.replicas.values()]
    assert all(order == orders[0] for order in orders)
    position = {ref: place for place, ref in enumerate(orders[0])}
    assert all(position[one] < position[ref] for ref in members.all for one in ref.seen)
    # Nobody stands last for ever: whatever hostile members wrote, the next honest message is the last one everywhere,
    # however wrong its writer's clock, and all honest ones go on like that.
    for member in (0, 1, 2, 0):
        ref = members.honest(member)
        for other in members.replicas:
            members.hear(other, ref)
            assert members.replicas[other].order()[-1] == ref


def test_who_writes_of_times_to_come_is_passed_by_the_first_answer() -> None:
    first = least_rank(own_ref_id(LAST_MS, ROOM, ANN, 1))
    for _ in range(10_000):
        first = rank_of(own_ref_id(NOW_MS, ROOM, ANN, 1), [first])
    assert first == (LAST_MS << TICK_BITS) + 10_000
    assert first < 1 << 63


def test_no_time_beyond_the_last_one_counts_as_more() -> None:
    assert least_rank(own_ref_id((1 << 48) - 1, ROOM, ANN, 1)) == least_rank(own_ref_id(LAST_MS, ROOM, ANN, 1))
    assert least_rank("no id") == 0
    assert rank_of(own_ref_id(0, ROOM, ANN, 1), []) == 0


def test_times_decide_between_those_who_had_not_seen_each_other() -> None:
    base = rank_of(own_ref_id(NOW_MS, ROOM, ANN, 1), [])
    earlier = rank_of(own_ref_id(NOW_MS + 10, ROOM, ANN, 1), [base])
    later = rank_of(own_ref_id(NOW_MS + 20, ROOM, ANN, 1), [base])
    behind = rank_of(own_ref_id(NOW_MS - 40 * 86_400_000, ROOM, ANN, 1), [base])
    assert base < behind < earlier < later
    assert stands_at_ms(behind) == NOW_MS
    assert stands_at_ms(later) == NOW_MS + 20


def test_a_rank_as_text_orders_as_the_number() -> None:
    ranks = [0, 9, 10, NOW_MS << TICK_BITS, (LAST_MS << TICK_BITS) + 5, (1 << 63) - 1]
    assert sorted(map(rank_text, ranks)) == [rank_text(rank) for rank in ranks]


def test_what_stands_in_another_shard_is_named_in_one_form() -> None:
    for after in (After("2026-11", (1, 0)), After("2027-01-003", (MAX_CLIENT, MAX_CLOCK))):
        assert parse_after(str(after)) == after
    for odd in (
        None,
        7,
        "",
        "2026-11/1",
        "2026-13/1/1",
        "2026-11-000/1/1",
        "2026-11/01/1",
        "2026-11/1/-1",
        f"2026-11/{MAX_CLIENT + 1}/0",
        f"2026-11/1/{MAX_CLOCK + 1}",
        "2026-11/1/1\n",
        b"2026-11/1/1",
    ):
        assert parse_after(odd) is None
