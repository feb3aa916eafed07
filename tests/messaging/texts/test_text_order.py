"""The order of a text's parts: as the walk of Yjs finds it, true parts and false ones."""

from __future__ import annotations

import random

import pytest

from sublet.messaging.documents.ordered import Ordered, Ranges
from sublet.messaging.texts.text_body import TextBody
from sublet.messaging.texts.text_order import TextOrder
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ezagent.yjs.update import STRING, Item, ItemId
from support.pycrdt_text import PycrdtTexts
from support.slow_text_order import SlowTextOrder


def ids_of(order: TextOrder) -> list[ItemId]:
    return [(run.client, run.clock + number) for run in order for number in range(run.length)]


def neighbours(rnd: random.Random, there: list[ItemId]) -> tuple[ItemId | None, ItemId | None]:
    """Return neighbours as an honest writer names them, who has seen some of a text, or as nobody could."""
    if there and rnd.random() < 0.5:
        share = rnd.choice((0.2, 0.5, 0.9, 1.0))
        seen = [one for one in there if rnd.random() < share]
        at = rnd.randint(-1, len(seen) - 1)
        return seen[at] if at >= 0 else None, seen[at + 1] if at + 1 < len(seen) else None
    if rnd.random() < 0.5:
        return None, None
    return rnd.choice((None, *there)), rnd.choice((None, *there))


@pytest.mark.parametrize("seed", range(300))
def test_the_order_is_that_of_yjs(seed: int) -> None:
    rnd = random.Random(seed)
    slow, quick = SlowTextOrder(), TextOrder()
    clocks: dict[int, int] = {}
    writers = rnd.randint(1, 8)
    for _ in range(rnd.randint(5, 120)):
        client, items = rnd.randint(1, writers), list[Item]()
        clock = clocks.get(client, 0)
        for _ in range(rnd.choice((1, 1, 1, 2))):
            left, right = neighbours(rnd, slow.ids())
            if items and rnd.random() < 0.5:
                left = client, clock - 1
            length = rnd.choice((1, 1, 2, 5))
            items.append(Item(clock, length, STRING, left, right, None, None, "x" * length))
            clock += length
        taken = slow.place(client, items)
        assert quick.place(client, items) == taken
        assert ids_of(quick) == slow.ids()
        if taken:
            clocks[client] = clock


class Writer:
    """One who writes a text with others, and takes what they wrote in some order of theirs."""

    def __init__(self, client: int) -> None:
        self.client = client
        self.body = TextBody("body")
        self.clock = 0
        self.have: list[tuple[int, bytes]] = []

    def take(self, client: int, raw: bytes) -> None:
        update = decode_update(raw)
        assert self.body.place(client, [item for item in update.items if item.kind == STRING])
        self.body.delete(update.deletions)
        self.have.append((client, raw))

    def write(self, rnd: random.Random) -> None:
        length = len(self.body.value)
        start = rnd.randint(0, length)
        end = min(length, start + rnd.choice((0, 0, 1, 3)))
        insert = rnd.choice(("a", "xyz", "\U0001f600", "\u00e9\u00df", "" if end > start else "b"))
        transaction = Transaction(self.client, self.clock)
        expected = self.body.value[:start] + insert + self.body.value[end:]
        self.body.edit(transaction, start, end, insert, {"at": ("content", None, self.clock)})
        raw = transaction.encode()
        assert decode_update(raw).items == transaction.update().items
        self.clock = transaction.clock
        self.take(self.client, raw)
        assert self.body.value == expected


@pytest.mark.parametrize("seed", range(60))
def test_texts_that_are_written_at_once_are_what_yrs_makes_of_them(seed: int) -> None:
    rnd = random.Random(seed)
    writers = [Writer(client) for client in rnd.sample(range(1, 1 << 40), rnd.randint(2, 5))]
    library = PycrdtTexts().open("body", "content")
    log: list[tuple[int, bytes]] = []

    def bring(one: Writer, other: Writer) -> None:
        """Let one have all that another has."""
        for client, raw in log:
            if (client, raw) in other.have and (client, raw) not in one.have:
                one.take(client, raw)

    for _ in range(80):
        one = rnd.choice(writers)
        if rnd.random() < 0.3:
            bring(one, rnd.choice([other for other in writers if other is not one]))
        else:
            one.write(rnd)
            log.append(one.have[-1])
            library.apply(one.have[-1][1])
    for one in writers:
        for other in writers:
            if one is not other:
                bring(one, other)
    assert {one.body.value for one in writers} == {library.value}


def test_what_is_deleted_before_it_comes_is_not_shown() -> None:
    writer, reader = TextBody("body"), TextBody("body")
    first = Transaction(1, 0)
    writer.edit(first, 0, 0, "hello", {})
    writer.place(1, first.update().items)
    second = Transaction(2, 0)
    writer.edit(second, 1, 4, "", {})
    reader.delete(second.update().deletions)
    assert reader.place(1, first.update().items)
    assert reader.value == "ho"


def test_places_compare_and_are_searched_as_in_a_list() -> None:
    rnd = random.Random(7)
    ordered: Ordered[int] = Ordered()
    plain: list[tuple[int, int]] = []
    for number in range(2_000):
        key = rnd.randint(0, 50)
        at = rnd.randint(0, len(plain))
        ordered.insert(number, key, plain[at][0] if at < len(plain) else None)
        plain.insert(at, (number, key))
        if rnd.random() < 0.2:
            gone, _ = plain.pop(rnd.randrange(len(plain)))
            ordered.remove(gone)
    assert list(ordered) == [number for number, _ in plain]
    assert ordered.first() == plain[0][0]
    for _ in range(500):
        one, other, key = rnd.randrange(len(plain)), rnd.randrange(len(plain)), rnd.randint(0, 51)
        assert (ordered.place(plain[one][0]) < ordered.place(plain[other][0])) == (one < other)
        behind = [number for number, there in plain[one + 1 :] if there <= key]
        assert ordered.next_at_most(plain[one][0], key) == (behind[0] if behind else None)
        before = [number for number, there in plain[:one] if there < key]
        assert ordered.last_below(plain[one][0], key) == (before[-1] if before else None)
        assert ordered.after(plain[one][0]) == (plain[one + 1][0] if one + 1 < len(plain) else None)


def test_ranges_hold_what_was_added() -> None:
    rnd = random.Random(3)
    ranges, plain = Ranges(), set[int]()
    for _ in range(200):
        start = rnd.randint(0, 300)
        end = start + rnd.randint(1, 12)
        ranges.add(start, end)
        plain |= set(range(start, end))
        assert {number for number in range(320) if ranges.holds(number)} == plain
        low = rnd.randint(0, 300)
        left = {number for start, end in ranges.left(low, low + 30) for number in range(start, end)}
        assert left == set(range(low, low + 30)) - plain
