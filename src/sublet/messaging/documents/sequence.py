"""The order of a document's elements and of the writes of one key: YATA, as yrs and Yjs decide it.

A node is put behind its left neighbour, and nearly always nothing else was put there. Where others were, they are
walked over, a few steps; beyond that an index finds the place, whose cost does not grow with what others put there
(``text_order.py`` tells why that is the same place).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sublet.messaging.documents.ordered import Ordered
from sublet.protocol.ezagent.yjs.update import ItemId

STEPS: Final = 64
"""That are walked before a list gets its index."""


@dataclass(slots=True, eq=False)
class Node:
    """One element in its place. ``length`` counts the items that were added with it: itself and its first fields."""

    id: ItemId
    length: int
    origin: ItemId | None
    right: ItemId | None
    entry_id: str
    signer: str
    seq: int
    rank: int = 0
    """Where a ref stands (``protocol/ezagent/order.py``); elements of other documents have none."""
    previous: Node | None = None
    next: Node | None = None


class Chain:
    """Nodes that are linked in an order, each found by its item and by its id."""

    def __init__(self) -> None:
        self.head: Node | None = None
        self.tail: Node | None = None
        self.nodes: dict[ItemId, Node] = {}
        self.by_entry: dict[str, Node] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        node = self.head
        while node is not None:
            yield node
            node = node.next

    def integrate(self, node: Node) -> None:
        """Put a node where the order puts it."""
        raise NotImplementedError

    def precedes(self, first: Node, second: Node) -> bool:
        """Tell whether one of two different nodes comes before the other."""
        raise NotImplementedError

    def link(self, node: Node, left: Node | None) -> None:
        """Put a node behind another one, or at the beginning."""
        following = left.next if left is not None else self.head
        node.previous, node.next = left, following
        if left is not None:
            left.next = node
        else:
            self.head = node
        if following is not None:
            following.previous = node
        else:
            self.tail = node
        self.nodes[node.id] = node
        if (
            node.id < self.by_entry.setdefault(node.entry_id, node).id
        ):  # one author gave two elements one id: all replicas take the same
            self.by_entry[node.entry_id] = node

    def backwards(self, before: Node | None = None) -> Iterator[Node]:
        """Yield nodes from the last, or from the one before ``before``, to the first."""
        node = before.previous if before is not None else self.tail
        while node is not None:
            yield node
            node = node.previous

    def forwards(self, after: Node | None = None) -> Iterator[Node]:
        """Yield nodes from the first, or from the one after ``after``, to the last."""
        node = after.next if after is not None else self.head
        while node is not None:
            yield node
            node = node.next


class YataList(Chain):
    """A linked list into which nodes are integrated in any order that keeps causes before effects."""

    def __init__(self) -> None:
        super().__init__()
        self._index: _Index | None = None
        """Made when it is first needed; a list has none as long as it is short or nobody writes at once with others."""

    def integrate(self, node: Node) -> None:
        """Put a node where YATA puts it; its neighbours at insertion must be here.

        Raises:
            KeyError: a neighbour is not here.
        """
        left = self.nodes[node.origin] if node.origin is not None else None
        right = self.nodes[node.right] if node.right is not None else None
        other = left.next if left is not None else self.head
        if other is not right:
            left = self._place(node, left, other, right)
        self.link(node, left)
        if self._index is not None:
            self._index.add(node)

    def _place(self, node: Node, left: Node | None, other: Node | None, right: Node | None) -> Node | None:
        """Return the node after which a node comes that others were inserted beside."""
        if right is None and node.right is None and self._index is not None:
            return self._index.place(node, left, self.tail)
        walked = self._walk(node, left, other, right)
        if not isinstance(walked, _TooFar):
            return walked
        self._index = _Index(self)
        return self._index.place(node, left, self.tail)

    def _walk(self, node: Node, left: Node | None, other: Node | None, right: Node | None) -> Node | _TooFar | None:
        steps = STEPS if right is None and node.right is None else len(self.nodes)
        conflicting: set[ItemId] = set()
        passed: set[ItemId] = set()
        while other is not None and other is not right:
            if not steps:
                return _TooFar()
            steps -= 1
            passed.add(other.id)
            conflicting.add(other.id)
            if other.origin == node.origin:
                if other.id[0] < node.id[0]:
                    left = other
                    conflicting.clear()
                elif other.right == node.right:
                    break
            elif other.origin is not None and other.origin in passed:
                if other.origin not in conflicting:
                    left = other
                    conflicting.clear()
            else:
                break
            other = other.next
        return left

    def precedes(self, first: Node, second: Node) -> bool:
        """Tell whether one of two different nodes comes before the other; costs as much as they are apart."""
        behind_first, behind_second = first.next, second.next
        while True:
            if behind_first is second or behind_second is None:
                return True
            if behind_second is first or behind_first is None:
                return False
            behind_first, behind_second = behind_first.next, behind_second.next


class _TooFar:
    """A walk that was given up."""


class _Index:
    """Where the descendants of each node end, and its children by their clients; all are put in before nothing.

    Args:
        nodes: what is there.
    """

    def __init__(self, nodes: YataList) -> None:
        self._all: Ordered[Node] = Ordered()
        self._depths: dict[Node, int] = {}
        self._children: dict[ItemId | None, list[Node]] = {}
        self._nodes = nodes.nodes
        for node in nodes:
            self._take(node, None)
            self._children.setdefault(node.origin, []).append(node)

    def add(self, node: Node) -> None:
        """Take a node that was put into the list; what it stands behind is here."""
        self._take(node, self._all.first() if node.previous is None else self._all.after(node.previous))
        siblings = self._children.setdefault(node.origin, [])
        siblings.insert(bisect_left(siblings, node.id[0], key=_client), node)

    def _take(self, node: Node, before: Node | None) -> None:
        above = self._nodes[node.origin] if node.origin is not None else None
        depth = self._depths[node] = self._depths[above] + 1 if above is not None else 0
        self._all.insert(node, depth, before)

    def place(self, node: Node, left: Node | None, tail: Node | None) -> Node | None:
        """Return the node after which a node comes."""
        siblings = self._children.get(node.origin, [])
        place = bisect_left(siblings, node.id[0], key=_client)
        if place == 0:
            return left
        last = siblings[place - 1]
        beyond = self._all.next_at_most(last, self._depths[last])
        return beyond.previous if beyond is not None else tail


def _client(node: Node) -> int:
    return node.id[0]


LinkT = TypeVar("LinkT")


def in_order(links: Sequence[tuple[ItemId, ItemId | None, ItemId | None, LinkT]]) -> list[LinkT]:
    """Return the writes of one key in YATA's order; the last is the one that a reader without rules would see.

    Args:
        links: id, origin, right neighbour and the thing itself, in the order of acceptance.
    """
    if len(links) == 1:
        return [links[0][3]]
    chain, found = YataList(), dict[ItemId, LinkT]()
    for id, origin, right, thing in links:
        known = chain.nodes
        node = Node(id, 1, origin if origin in known else None, right if right in known else None, "", "", 0)
        chain.integrate(node)
        found[id] = thing
    return [found[node.id] for node in chain]
