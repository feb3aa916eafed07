"""Digest trees and exchanges over them: what differs is found, at the cost of what differs."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublet.messaging.ports.tree_store import Leaf
from sublet.messaging.reconciling.exchange import MAX_IN_VAIN, Exchange, below, differing
from sublet.protocol.ezagent.digest_tree import FAN_OUT, MAX_DEPTH, Node, Prefix, digits, of_head, place_of, total
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.reconciliation import (
    MAX_LISTED,
    Below,
    NodesAsked,
    decode_asked,
    decode_differing,
    encode_differing,
    encode_nodes,
)
from support.budgets import examples

SALT = b"saltsalt"


class Leaves:
    """A tree in memory."""

    def __init__(self, documents: dict[str, int]) -> None:
        self.at = {place_of(name): Node(1) + of_head(name, 1, clock, b"h") for name, clock in documents.items()}

    def under(self, prefix: Prefix) -> list[Leaf]:
        found = sorted(place for place in self.at if digits(place)[: len(prefix)] == prefix)
        return [Leaf(place, 0, 0, self.at[place]) for place in found]

    def leaves(self, prefix: Prefix) -> list[Leaf] | None:
        found = self.under(prefix)
        return found if len(found) <= MAX_LISTED else None

    def children(self, prefix: Prefix) -> list[Node]:
        return [total(leaf.node for leaf in self.under((*prefix, digit))) for digit in range(FAN_OUT)]


def found(ours: Leaves, theirs: Leaves) -> tuple[set[bytes], int]:
    """Return the places that an exchange names, and how many bytes it takes."""
    exchange, named, size = Exchange(Random(0)), set[bytes](), 0
    while asked := exchange.next():
        question = encode_nodes(NodesAsked(SALT, tuple(below(ours, prefix, SALT) for prefix in asked)))
        heard = decode_asked(question)
        assert isinstance(heard, NodesAsked)
        answer = encode_differing([differing(theirs, one, heard.salt) for one in heard.below])
        size += len(question) + len(answer)
        places = exchange.told(asked, decode_differing(answer, len(asked)))
        if places:
            exchange.progressed()
        assert named.isdisjoint(places), "each is named once"
        named.update(places)
    return named, size


documents = st.dictionaries(st.integers(0, 400).map(str), st.integers(1, 3), max_size=300)


@given(documents, documents, documents)
@settings(max_examples=examples(60))
def test_exactly_what_the_other_has_in_another_form_is_named(
    shared: dict[str, int], one: dict[str, int], other: dict[str, int]
) -> None:
    ours, theirs = Leaves(shared | one), Leaves(shared | other)
    named, _ = found(ours, theirs)
    assert named == {place for place, node in theirs.at.items() if ours.at.get(place) != node}


def test_the_cost_follows_what_differs() -> None:
    shared = {str(number): 1 for number in range(3_000)}
    theirs = Leaves(shared | {"1": 2, "2": 2})
    named, size = found(Leaves(shared), theirs)
    assert named == {place_of("1"), place_of("2")}
    assert size < 3_000, "and it would be 48,000 to name all places"


def test_what_is_told_of_something_else_is_refused() -> None:
    exchange = Exchange(Random(0))
    asked = exchange.next()
    deeper = exchange.told(asked, decode_differing(encode_differing([differing(Leaves({}), _root(), SALT)]), 1))
    assert deeper == []
    exchange = Exchange(Random(0))
    exchange.told(exchange.next(), decode_differing(b"\1" + b"\0\1\0", 1))
    (prefix,) = exchange.next()
    assert prefix == (0,)
    outside = next(place for place in map(place_of, map(str, range(99))) if digits(place)[0] != 0)
    with pytest.raises(Refused):
        exchange.told([prefix], decode_differing(b"\1" + b"\0\0\1" + outside, 1))


def _root() -> Below:
    return below(Leaves({}), (), SALT)


def test_who_claims_differences_everywhere_is_followed_for_so_long_only() -> None:
    exchange, count = Exchange(Random(0)), 0
    while asked := exchange.next():
        count += len(asked)
        everywhere = b"\1" + b"".join(b"\xff\xff\0" if len(prefix) < MAX_DEPTH else b"\0\0\0" for prefix in asked)
        exchange.told(asked, decode_differing(everywhere, len(asked)))
    assert count < MAX_IN_VAIN + 64
    assert exchange.is_given_up
