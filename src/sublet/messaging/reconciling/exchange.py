"""Both sides of an exchange over two digest trees, without I/O: who asks descends, who answers compares.

Rules: what is the same is never descended into, so an exchange costs what differs and not what is there. Whoever asks
goes on with some prefixes at a time, the deepest first, so what is open stays short. Weak: a member that claims
differences everywhere is followed until ``MAX_IN_VAIN`` prefixes have brought nothing, in another order each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Protocol

from sublet.messaging.ports.tree_store import Leaf
from sublet.protocol.ezagent.digest_tree import (
    FAN_OUT,
    MAX_DEPTH,
    NOTHING,
    Node,
    Prefix,
    bounds,
    fingerprint,
    leaf_fingerprint,
)
from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.reconciliation import MAX_PREFIXES, Below, Differing

MAX_IN_VAIN: Final = 1_024
"""Prefixes that are asked for one after the other without anything that could be taken; then the rest is for later."""


class Tree(Protocol):
    """The digest tree of one room."""

    def children(self, prefix: Prefix) -> list[Node]:
        """Return the nodes of a prefix with each further digit."""

    def leaves(self, prefix: Prefix) -> list[Leaf] | None:
        """Return the leaves below a prefix; None where they are more than are told one by one."""


def below(tree: Tree, prefix: Prefix, salt: bytes) -> Below:
    """Return what is below a prefix, as whoever asks tells it."""
    leaves = tree.leaves(prefix)
    if leaves is not None:
        return Below(prefix, tuple(leaf_fingerprint(leaf.place, leaf.node, salt) for leaf in leaves), is_leaves=True)
    return Below(prefix, tuple(fingerprint(node, salt) for node in tree.children(prefix)), is_leaves=False)


def differing(tree: Tree, asked: Below, salt: bytes) -> Differing:
    """Return what of ours is not at whoever asks below a prefix: places of leaves, or digits to descend to."""
    leaves = tree.leaves(asked.prefix)
    if asked.is_leaves and leaves is not None:
        there = set(asked.fingerprints)
        return Differing(
            places=tuple(leaf.place for leaf in leaves if leaf_fingerprint(leaf.place, leaf.node, salt) not in there)
        )
    nodes = tree.children(asked.prefix)
    digits = (
        digit for digit in range(FAN_OUT) if nodes[digit] != NOTHING
    )  # of what is not here there is nothing to tell
    if not asked.is_leaves:
        digits = (digit for digit in digits if fingerprint(nodes[digit], salt) != asked.fingerprints[digit])
    return Differing(digits=tuple(digits))


class Exchange:
    """The side of who asks.

    Args:
        random: decides in which order differences are followed, so that no member can keep the same ones for last.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._open: list[Prefix] = [()]
        self._in_vain = 0

    def next(self) -> list[Prefix]:
        """Return the prefixes to ask for now; none where the exchange is over."""
        if self._in_vain >= MAX_IN_VAIN:
            return []
        asked, self._open = self._open[-MAX_PREFIXES:], self._open[:-MAX_PREFIXES]
        self._in_vain += len(asked)
        return asked

    def told(self, asked: Sequence[Prefix], found: Sequence[Differing]) -> list[bytes]:
        """Take an answer, and return the places to fetch.

        Args:
            asked: the prefixes, as ``next`` has returned them.
            found: what differs, for each of them.

        Raises:
            Refused: ``MALFORMED``: it tells of something else than was asked.
        """
        places: list[bytes] = []
        deeper: list[Prefix] = []
        for prefix, one in zip(asked, found, strict=True):
            first, last = bounds(prefix)
            if not all(first <= place <= last for place in one.places) or (one.digits and len(prefix) >= MAX_DEPTH):
                raise malformed("an answer about something else")
            places += one.places
            deeper += ((*prefix, digit) for digit in one.digits)
        self._random.shuffle(deeper)
        self._open += deeper
        return places

    def progressed(self) -> None:
        """Note that something of what was told could be taken."""
        self._in_vain = 0

    @property
    def is_given_up(self) -> bool:
        """Whether it has ended before all differences were followed."""
        return bool(self._open)
